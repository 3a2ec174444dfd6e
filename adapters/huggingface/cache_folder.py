"""One repository's folder in the hub library's cache: refs, snapshots that link to blobs, and files under way.

Layout: `models--OWNER--NAME/{refs/REVISION, snapshots/COMMIT/FILE -> ../../blobs/DIGEST}`. A file becomes visible whole
or not at all; what is under way lies beside the blobs under a name of its own. Nothing is written through a link, and
no name that a hub sends becomes part of a path before it was checked.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tensorfold.application.checkpoint_links import stays_inside
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.fields import clipped

COMMIT = re.compile(r"[0-9a-f]{40}")
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
MAIN = "main"
_CONFIG = "config.json"
_PARTIAL = ".tensorfold.incomplete"
_UNLOCKABLE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_REF_BYTES = 64


class RepositoryFolder:
    """The folder of `repo` (owner/name, checked by the caller) below `cache`; nothing is made before it is needed."""

    def __init__(self, cache: Path, repo: str) -> None:
        self.repo = repo
        self.root = cache / f"models--{repo.replace('/', '--')}"
        self._lock = cache / ".locks" / self.root.name / "tensorfold.lock"

    def known(self, revision: str | None) -> Path | None:
        """The snapshot that a revision stands for here, when it holds a config.json."""
        commit = self.commit(revision)
        folder = None if commit is None else self.snapshot(commit)
        return folder if folder is not None and (folder / _CONFIG).is_file() else None

    def newest(self) -> Path | None:
        """The newest snapshot with a config.json where nothing says what any branch points to, else None.

        So is a cache that was copied without its refs, or a first download that broke off. Where there is a ref, a
        snapshot without one may be of any branch.
        """
        if any((self.root / "refs").glob("*")):
            return None
        folders = [path for path in (self.root / "snapshots").glob("*") if COMMIT.fullmatch(path.name)]
        with_config = [path for path in folders if (path / _CONFIG).is_file()]
        return max(with_config, key=lambda path: path.stat().st_mtime, default=None)

    def commit(self, revision: str | None) -> str | None:
        """The commit of a revision as this cache knows it."""
        if revision is not None and COMMIT.fullmatch(revision):
            return revision
        try:
            with open(self.root / "refs" / (revision or MAIN), "rb") as file:
                text = file.read(_REF_BYTES).decode("ascii").strip()
        except (OSError, ValueError):
            return None
        return text if COMMIT.fullmatch(text) else None

    def snapshot(self, commit: str) -> Path:
        """Where the files of a commit lie."""
        return self.root / "snapshots" / commit

    def blob(self, digest: str) -> Path:
        """Where a whole file lies."""
        return self.root / "blobs" / digest

    def partial(self, digest: str) -> Path:
        """Where a file under way lies."""
        return self.root / "blobs" / f"{digest}{_PARTIAL}"

    def holds(self, commit: str, name: str, size: int) -> bool:
        """Whether a snapshot has a file, in its place and of its size."""
        path = self.snapshot(commit) / name
        with contextlib.suppress(OSError):
            return stays_inside(str(path)) and path.stat().st_size == size
        return False

    def prepare(self, commit: str) -> None:
        """Make the folders. Raises RefusedError when one is a link, and OSError."""
        for folder in (self.root / "blobs", self.root / "refs", self.root / "snapshots", self.snapshot(commit)):
            folder.mkdir(parents=True, exist_ok=True)
            if folder.is_symlink():
                raise RefusedError(
                    f"{clipped(str(folder), 400)} is a link; remove it, since nothing is written through a link."
                )

    def keep(self, commit: str, name: str, digest: str, data: bytes) -> None:
        """Put a small file into a snapshot. Raises OSError."""
        self.prepare(commit)
        blob = self.blob(digest)
        if not (blob.is_file() and not blob.is_symlink() and blob.stat().st_size == len(data)):
            with _beside(blob) as (descriptor, path):
                write_all(descriptor, data)
                os.fchmod(descriptor, 0o644)
                os.replace(path, blob)
        self.link(commit, name, digest)

    def link(self, commit: str, name: str, digest: str) -> None:
        """Make a blob visible in a snapshot; where the disk knows no links, the file itself goes there. OSError."""
        place = self.snapshot(commit) / name
        target = os.path.join("..", "..", "blobs", digest)
        if os.path.islink(place) and os.readlink(place) == target:
            return
        with tempfile.TemporaryDirectory(prefix=".link-", dir=self.root) as made:
            link = os.path.join(made, name)
            try:
                os.symlink(target, link)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise
                link = str(self.blob(digest))
            os.replace(link, place)

    def point(self, revision: str | None, commit: str) -> None:
        """Let a branch or tag stand for a commit from now on. Raises OSError."""
        revision = revision or MAIN
        if COMMIT.fullmatch(revision) or self.commit(revision) == commit:
            return
        ref = self.root / "refs" / revision
        with _beside(ref) as (descriptor, path):
            write_all(descriptor, commit.encode("ascii"))
            os.fchmod(descriptor, 0o644)
            os.replace(path, ref)

    @contextlib.contextmanager
    def locked(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """The one download of this repository; `on_wait` is called when another process has it. Raises OSError.

        The lock is the system's, so a killed process leaves none. Where the disk knows no locks, there is none.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _UNLOCKABLE:
                    raise
            yield
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _beside(place: Path) -> Iterator[tuple[int, str]]:
    """A new file in the same folder, to be renamed to its place; gone when it was not."""
    descriptor, path = tempfile.mkstemp(prefix=".new-", dir=place.parent)
    try:
        yield descriptor, path
    finally:
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
