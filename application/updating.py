"""`tensorfold update`: learn the newest release, install it the way this copy was installed, say what is new.

Knows no network and runs nothing itself. A tag reaches a command's words only after it was read as `vX.Y.Z`, and a
clone is changed only when git finds nothing uncommitted in it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tensorfold.application.changelog import news
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.installation import NOT_RUN, Installation, Installed, UpdateMemory
from tensorfold.application.ports.services import Release, ReleaseFeed
from tensorfold.application.releases import ProjectAddress, Version, read_tag, read_version

ASK_S = 10.0
_READ_VERSION = "import tensorfold; print(tensorfold.__version__)"

Say = Callable[[str], None]


class Updating:
    """One run of the command. `say` gets a result's lines, `warn` what goes to the error output."""

    def __init__(
        self,
        installation: Installation,
        feed: ReleaseFeed,
        memory: UpdateMemory,
        address: ProjectAddress,
        say: Say,
        warn: Say,
    ) -> None:
        self._installation = installation
        self._installed = installation.facts()
        self._feed = feed
        self._memory = memory
        self._address = address
        self._say = say
        self._warn = warn

    def check(self) -> int:
        """Say whether there is a newer release; 0. Raises RefusedError when that cannot be learned."""
        old, release, new = self._compared()
        if new > old:
            self._say(f"tensorfold {release.tag} is out, {self._installed.version} is installed: {release.notes}")
            self._say("`tensorfold update` installs it.")
        else:
            self._say(self._current(release, new == old))
        return 0

    def update(self, *, force: bool = False) -> int:
        """Install the newest release, or, with `force`, install it again.

        Returns 0, or the exit code of pip or git, whichever refused. Raises RefusedError, with nothing changed.
        """
        old, release, new = self._compared()
        if new <= old and not force:
            self._say(self._current(release, new == old))
            return 0
        copy = self._installed
        if copy.editable is not None and copy.clone is None:
            raise RefusedError(
                f"tensorfold is installed in editable form from {copy.editable}, which is no git clone; put the files "
                f"of {release.tag} there by hand."
            )
        code = self._pull(release.tag, copy.clone) if copy.clone else self._install(release.tag, again=new <= old)
        return code or self._finish(old, release, new)

    def _compared(self) -> tuple[Version, Release, Version]:
        old = read_version(self._installed.version)
        if old is None:
            raise RefusedError(
                f"This copy's version is {self._installed.version!r}, not of the form X.Y.Z that releases are compared "
                "with; update it the way it came."
            )
        release = self._feed.latest(ASK_S)
        new = None if release is None else read_tag(release.tag)
        if release is None or new is None:
            raise RefusedError(
                f"The newest release of {self._address.page} could not be learned within {ASK_S:g} seconds: the site "
                "cannot be reached, or its answer names no release vX.Y.Z."
            )
        return old, release, new

    def _current(self, release: Release, equal: bool) -> str:
        version = self._installed.version
        if equal:
            return f"tensorfold {version} is the newest release."
        return f"tensorfold {version} is newer than the newest release, {release.tag}."

    def _install(self, tag: str, *, again: bool) -> int:
        """By pip, into the interpreter that runs this. What is installed again leaves its dependencies alone."""
        if not self._installed.pip:
            raise RefusedError(
                f"This Python has no pip; install git+{self._address.page}@{tag} by the tool that made this "
                "environment, or add pip by `python -m ensurepip`."
            )
        forced = ["--force-reinstall", "--no-deps"] if again else []
        # -P: no module that lies in the user's own folder may pose as pip.
        pip = [self._installed.python, "-P", "-m", "pip", "install", "--upgrade", *forced]
        code = self._installation.run([*pip, f"git+{self._address.page}@{tag}"])
        if code:
            self._warn(f"pip ended with {code}; tensorfold {self._installed.version} may still be in place.")
        return code

    def _pull(self, tag: str, clone: Path) -> int:
        """By git, in the clone of an editable install; only forward, and only when it is clean."""
        code, changes = self._installation.read(["git", "status", "--porcelain"], clone)
        if code:
            return self._git_failed("look at", clone, code)
        if changes:
            lines = changes.splitlines()
            first = "".join(c for c in lines[0] if c.isprintable())[:80]
            raise RefusedError(
                f"The clone at {clone} has {len(lines)} uncommitted change{'s' if len(lines) > 1 else ''} (first: "
                f"{first.strip()}); commit or stash them and run `tensorfold update` again. Nothing was changed."
            )
        for what, command in (
            ("fetch into", ["git", "fetch", "--tags", "origin"]),
            ("fast-forward", ["git", "merge", "--ff-only", f"refs/tags/{tag}"]),
        ):
            if code := self._installation.run(command, clone):
                return self._git_failed(what, clone, code)
        return 0

    def _git_failed(self, what: str, clone: Path, code: int) -> int:
        if code == NOT_RUN:
            raise RefusedError(f"git, which updates the clone at {clone}, is not there; install git.")
        self._warn(f"git could not {what} the clone at {clone} and ended with {code}; its files are as they were.")
        return code

    def _finish(self, old: Version, release: Release, new: Version) -> int:
        self._memory.forget_check()
        copy = self._installed
        code, said = self._installation.read([copy.python, "-P", "-c", _READ_VERSION])
        now = said.strip() if code == 0 else ""
        if read_version(now) != new:
            found = f"reads {now}" if read_version(now) else "cannot be read"
            self._warn(f"{release.tag} was installed without an error, but the installed version {found}.")
            return 1
        what = "was installed again" if now == copy.version else f"is installed now, {copy.version} was before"
        self._say(f"tensorfold {now} {what}; restart servers that run.")
        if copy.editable is not None:
            self._say(
                f"Run `{copy.python} -m pip install -e .` in {copy.editable} to bring metadata and dependencies up "
                "to date."
            )
        self._show_news(copy, old, release, new)
        return 0

    def _show_news(self, copy: Installed, old: Version, release: Release, new: Version) -> None:
        if copy.editable is not None:
            text = self._installation.changelog()
        else:
            text = self._feed.changelog(release.tag, ASK_S) if new > old else None
        for line in news(text or "", old, new):
            self._say(line)
        self._say(f"Notes: {release.notes}")
