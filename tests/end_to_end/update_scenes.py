"""What `tensorfold update` and a starting server do about releases, scene by scene, against a site on loopback.

A scene raises AssertionError when something is not as documented, and returns how many commands it ran.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.end_to_end.commands import Ran
from tests.end_to_end.scratch_copies import CHANGES, NEW, OLD, CloneCopy, PlainCopy, git
from tests.fakes.release_site import LATEST, body, dripping, release_site, silent
from tests.synthetic.servable import write_servable

HOSTILE = (
    f"v{NEW}; touch pwned", f"v{NEW}$(touch pwned)", "--upload-pack=touch pwned", f"v{NEW}\ntouch pwned",
    f"v{NEW}@main", f"v{NEW}#egg=evil", "../../evil", "main", f"v{NEW}.post1", f"V{NEW}", NEW, "",
    9.9, None, [f"v{NEW}"],
)  # fmt: skip
Scene = Callable[[Path], int]


def a_check_says_what_is_out_and_changes_nothing(folder: Path) -> int:
    """By pip or in a clone: one question, two lines, nothing run."""
    with release_site(f"v{NEW}") as site:
        plain, clone = PlainCopy(made(folder / "plain"), site.page), CloneCopy(made(folder / "clone"), site.page)
        before = clone.state()
        for copy in (plain, clone):
            ran = copy.run("update", "--check")
            notes = f"{site.page}/releases/tag/v{NEW}"
            said(ran, f"tensorfold v{NEW} is out, {OLD} is installed: {notes}\n`tensorfold update` installs it.\n")
        assert site.requests == [LATEST, LATEST]
        assert plain.pips() == [] and clone.state() == before
    return 2


def a_current_copy_is_left_alone(folder: Path) -> int:
    """Whether it equals the newest release or is above it; --force installs again."""
    with release_site(f"v{OLD}") as site:
        copy = PlainCopy(folder, site.page)
        said(copy.run("update"), f"tensorfold {OLD} is the newest release.\n")
        said(copy.run("update", "--check"), f"tensorfold {OLD} is the newest release.\n")
        site.announce("v0.0.1")
        said(copy.run("update"), f"tensorfold {OLD} is newer than the newest release, v0.0.1.\n")
        assert copy.pips() == []
        site.announce(f"v{OLD}")
        ran = copy.run("update", "--force")
        assert ran.code == 0 and ran.err == ""
        again = ["--force-reinstall", "--no-deps"]
        assert copy.pips() == [["install", "--upgrade", *again, f"git+{site.page}@v{OLD}"]]
        assert "thing" not in ran.out and f"/releases/tag/v{OLD}" in ran.out
        refused(copy.run("update", "--check", "--force"), "give one of them")
    return 5


def a_site_out_of_reach_or_without_a_release_is_one_line_and_nothing_is_run(folder: Path) -> int:
    """Gone, broken, huge and endless answers."""
    with release_site() as site:
        copy = PlainCopy(folder, site.page)
        refused(copy.run("update"), "could not be learned")
        for answer in (
            body(b"", "500 Internal Server Error"),
            body(b"[" * 50_000),
            body(b'{"tag_name": "' + b"v" * (2 << 20) + b'"}'),
            dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 2000000000\r\n\r\n", b" " * (1 << 16), 0.0),
        ):
            site.answers[LATEST] = answer
            refused(copy.run("update"), "could not be learned")
    refused(copy.run("update", "--check"), f"The newest release of {site.page} could not be learned")
    refused(copy.run("update", "--force"), "could not be learned")
    assert copy.pips() == []
    return 7


def a_site_that_never_answers_is_given_ten_seconds(folder: Path) -> int:
    """And not many more."""
    with release_site() as site:
        site.answers[LATEST] = silent
        ran = PlainCopy(folder, site.page).run("update")
        refused(ran, "within 10 seconds")
        assert 10 <= ran.seconds < 40, f"took {ran.seconds:.1f} s"
    return 1


def a_hostile_tag_reaches_no_command(folder: Path) -> int:
    """By pip or in a clone, with and without --force."""
    with release_site() as site:
        plain, clone = PlainCopy(made(folder / "plain"), site.page), CloneCopy(made(folder / "clone"), site.page)
        before = clone.state()
        for number, tag in enumerate(HOSTILE):
            site.announce(tag)
            copy, force = (plain, clone)[number % 2], ("--force",) * (number % 3 == 0)
            refused(copy.run("update", *force), "could not be learned")
        assert plain.pips() == [] and clone.state() == before
        assert not list(folder.rglob("pwned"))
    return len(HOSTILE)


def an_installed_copy_is_renewed_by_pip_and_says_what_is_new(folder: Path) -> int:
    """The command's words, the changelog's newer part, the version read back; pip's own refusal is passed on."""
    with release_site(f"v{NEW}") as site:
        site.publish(f"v{NEW}", CHANGES.encode() + b"\x1b]0;title\x07")
        copy = PlainCopy(folder, site.page)
        copy.refuse(23)
        ran = copy.run("update")
        assert (ran.code, ran.out) == (23, "") and "pip: refused" in ran.err and "pip ended with 23" in ran.err
        (copy.site / "pip.code").unlink()
        ran = copy.run("update")
        assert (ran.code, ran.err) == (0, "")
        assert copy.pips() == [["install", "--upgrade", f"git+{site.page}@v{NEW}"]] * 2
        lines = ran.out.splitlines()
        assert lines[0] == f"tensorfold {NEW} is installed now, {OLD} was before; restart servers that run."
        assert lines[1:-1] == CHANGES[CHANGES.index(f"## {NEW}") : CHANGES.index(f"## {OLD}")].strip().splitlines()
        assert lines[-1] == f"Notes: {site.page}/releases/tag/v{NEW}"
        said(copy.run("--version"), f"tensorfold {NEW}\n")
        said(copy.run("update"), f"tensorfold {NEW} is the newest release.\n")
    return 4


def a_clean_clone_is_moved_forward_and_says_what_is_new(folder: Path) -> int:
    """To the tag and no further, with the reminder; the clone's own changelog is read."""
    with release_site(f"v{NEW}") as site:
        copy = CloneCopy(folder, site.page)
        (copy.origin / "later").write_text("not released\n")
        copy.commit(copy.origin, "Not released")
        ran = copy.run("update")
        assert ran.code == 0
        assert git(copy.clone, "rev-parse", "HEAD") == git(copy.origin, "rev-parse", f"v{NEW}")
        assert f"tensorfold {NEW} is installed now, {OLD} was before" in ran.out
        assert f"-m pip install -e .` in {copy.clone}" in ran.out
        assert "newest thing" in ran.out and "thing between" in ran.out and "old thing" not in ran.out
        assert site.requests == [LATEST]
        said(copy.run("update"), f"tensorfold {NEW} is the newest release.\n")
    return 2


def a_dirty_clone_is_refused_unchanged(folder: Path) -> int:
    """A changed file, a new one, a staged one."""
    with release_site(f"v{NEW}") as site:
        copy = CloneCopy(folder, site.page)
        (copy.clone / "new file").write_text("mine\n")
        _refused_unchanged(copy, '?? "new file"')
        git(copy.clone, "add", "--all")
        _refused_unchanged(copy, 'A  "new file"')
        git(copy.clone, "reset", "--quiet", "--hard")
        (copy.clone / "CHANGELOG.md").write_text("mine\n")
        _refused_unchanged(copy, "M CHANGELOG.md")
        assert (copy.clone / "CHANGELOG.md").read_text() == "mine\n"
    return 3


def a_clone_that_cannot_be_moved_forward_stays_and_gits_code_is_returned(folder: Path) -> int:
    """Commits of its own; an origin without the tag; an origin that is gone."""
    with release_site(f"v{NEW}") as site:
        copy = CloneCopy(folder, site.page)
        (copy.clone / "own").write_text("mine\n")
        copy.commit(copy.clone, "Mine")
        _git_refuses(copy, "fast-forward", 128)
        git(copy.clone, "reset", "--quiet", "--hard", "HEAD~1")
        site.announce("v9.9.8")
        _git_refuses(copy, "fast-forward", 1)
        copy.origin.rename(folder / "elsewhere")
        _git_refuses(copy, "fetch into", 128)
    return 3


def a_copy_that_no_installer_can_renew_is_refused(folder: Path) -> int:
    """Editable but no clone; git that is not there; metadata that is not there."""
    with release_site(f"v{NEW}") as site:
        copy = CloneCopy(folder, site.page)
        refused(copy.run("update", PATH=str(folder)), "install git")
        (copy.clone / ".git").rename(folder / "kept")
        refused(copy.run("update"), "which is no git clone")
    return 2


def a_server_says_once_a_day_what_is_out_and_once_a_version_what_is_new(folder: Path) -> int:
    """Asked once, kept, silent when switched off, and never waited for; the first start's line needs no network."""
    with release_site(f"v{NEW}") as site:
        copy = PlainCopy(folder, site.page)
        write_servable(made(folder / "tiny"))
        out = f"tensorfold v{NEW} is out, this is {OLD}: {site.page}/releases/tag/v{NEW}"
        first = f"first start of version {OLD}; what is new: {site.page}/releases/tag/v{OLD}"
        _counts(copy.serve("tiny", wait=[out, first]), {out: 1, first: 1})
        _counts(copy.serve("tiny", wait=[out]), {out: 1, first: 0})
        assert site.requests == [LATEST] and site.connections == 1, site.requests

        for file in ("update-check.json", "version-seen"):
            (copy.cache / file).unlink()
        _counts(copy.serve("tiny", "--no-update-check", wait=[first]), {"is out": 0, first: 1})
        _counts(copy.serve("tiny", TENSORFOLD_NO_UPDATE_CHECK="1"), {"is out": 0, "first start": 0})
        assert site.connections == 1 and not (copy.cache / "update-check.json").exists()

        site.answers[LATEST] = silent
        _counts(copy.serve("tiny"), {"is out": 0, "first start": 0})
        assert site.connections == 2

        site.announce(f"v{NEW}")
        assert copy.run("update").code == 0
        later = f"first start of version {NEW}; what is new: {site.page}/releases/tag/v{NEW}"
    # The site is gone: the line about the version comes all the same, and nothing is said of the check.
    _counts(copy.serve("tiny", wait=[later]), {"is out": 0, later: 1})
    _counts(copy.serve("tiny"), {"is out": 0, "first start": 0})
    return 8


SCENES: tuple[Scene, ...] = (
    a_server_says_once_a_day_what_is_out_and_once_a_version_what_is_new,
    a_check_says_what_is_out_and_changes_nothing,
    a_current_copy_is_left_alone,
    a_site_out_of_reach_or_without_a_release_is_one_line_and_nothing_is_run,
    a_site_that_never_answers_is_given_ten_seconds,
    a_hostile_tag_reaches_no_command,
    an_installed_copy_is_renewed_by_pip_and_says_what_is_new,
    a_clean_clone_is_moved_forward_and_says_what_is_new,
    a_dirty_clone_is_refused_unchanged,
    a_clone_that_cannot_be_moved_forward_stays_and_gits_code_is_returned,
    a_copy_that_no_installer_can_renew_is_refused,
)


def made(folder: Path) -> Path:
    """The folder, made."""
    folder.mkdir(parents=True)
    return folder


def said(ran: Ran, text: str) -> None:
    """A command ended well and said exactly this."""
    assert (ran.code, ran.out, ran.err) == (0, text, ""), ran


def refused(ran: Ran, words: str) -> None:
    """A command was refused in one line that holds these words."""
    assert ran.refusal_faults() == [], ran.refusal_faults()
    assert words in ran.err, ran.err


def _refused_unchanged(copy: CloneCopy, change: str) -> None:
    before = copy.state()
    refused(copy.run("update"), f"1 uncommitted change (first: {change})")
    assert copy.state() == before


def _git_refuses(copy: CloneCopy, what: str, code: int) -> None:
    head, _, status = copy.state()
    ran = copy.run("update")
    assert ran.code == code and f"git could not {what} the clone at {copy.clone} and ended with {code}" in ran.err, ran
    assert "is installed now" not in ran.out and "thing" not in ran.out
    assert (copy.state()[0], copy.state()[2]) == (head, status)


def _counts(lines: list[str], wanted: dict[str, int]) -> None:
    found = {text: sum(text in line for line in lines) for text in wanted}
    assert found == wanted, f"{found} in {os.linesep.join(lines)}"
