"""`update` over a fake installation: what is run, in which order, what is said, and what is never reached."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.installation import NOT_RUN, Installed
from tensorfold.application.ports.services import Release
from tensorfold.application.releases import read_address
from tensorfold.application.updating import Updating
from tests.application.test_releases import HOSTILE_TAGS
from tests.fakes.installation import FakeInstallation, FakeUpdateMemory
from tests.fakes.services import FakeReleaseFeed

PAGE = "https://github.com/owner/name"
CHANGES = "# Changes\n\n## 0.3.0\n\n- Three.\n\n## 0.2.0\n\n- Two.\n\n## 0.1.0\n\n- One.\n"
PLAIN = Installed("0.1.0", "python", True, PAGE)
CLONE = replace(PLAIN, editable=Path("clone"), clone=Path("clone"))


@dataclass
class Bench:
    """A copy at 0.1.0, a feed that announces a tag, and what was said."""

    installed: Installed = PLAIN
    tag: str | None = "v0.3.0"
    said: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.feed = FakeReleaseFeed(None if self.tag is None else Release(self.tag, f"{PAGE}/notes"), CHANGES)
        self.installation = FakeInstallation(self.installed, becomes=(self.tag or "v")[1:])
        self.installation.changes = CHANGES
        self.memory = FakeUpdateMemory()
        self.memory.remember_check("v0.1.0", 5.0)
        address = read_address(PAGE)
        assert address is not None
        self.run = Updating(self.installation, self.feed, self.memory, address, self.said.append, self.warned.append)


@pytest.mark.parametrize("installed", [PLAIN, CLONE], ids=["plain", "clone"])
def test_a_check_says_what_is_out_and_changes_nothing(installed: Installed) -> None:
    bench = Bench(installed)
    assert bench.run.check() == 0
    assert bench.said == [
        f"tensorfold v0.3.0 is out, 0.1.0 is installed: {PAGE}/notes",
        "`tensorfold update` installs it.",
    ]
    assert bench.installation.commands == [] and bench.memory.check is not None


@pytest.mark.parametrize(
    ("tag", "word"), [("v0.1.0", "is the newest release"), ("v0.0.9", "newer than the newest release, v0.0.9")]
)
def test_a_current_copy_is_left_alone(tag: str, word: str) -> None:
    for only_look in (True, False):
        bench = Bench(tag=tag)
        assert (bench.run.check() if only_look else bench.run.update()) == 0
        assert len(bench.said) == 1 and word in bench.said[0]
        assert bench.installation.commands == []


@pytest.mark.parametrize("tag", [None, *(tag for tag in HOSTILE_TAGS if isinstance(tag, str))], ids=repr)
def test_a_release_that_cannot_be_learned_or_compared_is_refused_before_anything_runs(tag: str | None) -> None:
    bench = Bench(tag=tag)
    for act in (bench.run.check, bench.run.update):
        with pytest.raises(RefusedError, match="could not be learned within 10 seconds"):
            act()
    with pytest.raises(RefusedError):
        bench.run.update(force=True)
    assert bench.installation.commands == [] and bench.feed.asked == [10.0, 10.0, 10.0]


def test_a_copy_whose_own_version_is_odd_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"'0\.1\.0\.dev4', not of the form X\.Y\.Z"):
        Bench(replace(PLAIN, version="0.1.0.dev4")).run.check()


def test_a_plain_install_is_renewed_by_pip_with_the_same_interpreter() -> None:
    bench = Bench()
    assert bench.run.update() == 0
    assert bench.installation.words[0] == f"python -P -m pip install --upgrade git+{PAGE}@v0.3.0"
    assert len(bench.installation.commands) == 2
    assert bench.said[0] == "tensorfold 0.3.0 is installed now, 0.1.0 was before; restart servers that run."
    assert bench.said[1:-1] == ["## 0.3.0", "", "- Three.", "", "## 0.2.0", "", "- Two."]
    assert bench.said[-1] == f"Notes: {PAGE}/notes"
    assert bench.memory.check is None and bench.warned == []


def test_without_a_changelog_the_notes_are_named_all_the_same() -> None:
    bench = Bench()
    bench.feed.changes = None
    assert bench.run.update() == 0
    assert len(bench.said) == 2 and bench.said[-1] == f"Notes: {PAGE}/notes"


@pytest.mark.parametrize("tag", ["v0.1.0", "v0.0.9"])
def test_force_installs_the_newest_again_and_leaves_dependencies_alone(tag: str) -> None:
    bench = Bench(tag=tag)
    assert bench.run.update(force=True) == 0
    assert bench.installation.words[0].endswith(f"--upgrade --force-reinstall --no-deps git+{PAGE}@{tag}")
    again = "was installed again" if tag == "v0.1.0" else "is installed now, 0.1.0 was before"
    assert bench.said == [f"tensorfold {tag[1:]} {again}; restart servers that run.", f"Notes: {PAGE}/notes"]


def test_force_on_an_older_copy_is_the_plain_update() -> None:
    bench = Bench()
    assert bench.run.update(force=True) == 0
    assert "--force-reinstall" not in bench.installation.words[0]


@pytest.mark.parametrize("code", [1, 2, 130])
def test_pips_exit_code_is_returned_and_nothing_is_claimed(code: int) -> None:
    bench = Bench()
    bench.installation.codes["pip"] = code
    assert bench.run.update() == code
    assert bench.said == [] and f"pip ended with {code}" in bench.warned[0]
    assert len(bench.installation.commands) == 1 and bench.memory.check is not None


def test_without_pip_the_line_names_what_to_install() -> None:
    bench = Bench(replace(PLAIN, pip=False))
    with pytest.raises(RefusedError, match=rf"no pip; install git\+{PAGE}@v0.3.0"):
        bench.run.update()
    assert bench.installation.commands == []


@pytest.mark.parametrize(("told", "word"), [("0.1.0\n", "reads 0.1.0"), ("nonsense\x1b[", "cannot be read")])
def test_an_install_that_left_another_version_is_told_and_fails(told: str, word: str) -> None:
    for code in (0, 3):
        bench = Bench()
        bench.installation.said["-c"] = told
        bench.installation.codes["-c"] = code
        assert bench.run.update() == 1
        assert (word if code == 0 else "cannot be read") in bench.warned[0] and bench.said == []


def test_a_clone_is_checked_fetched_and_moved_forward_only() -> None:
    bench = Bench(CLONE)
    assert bench.run.update() == 0
    assert bench.installation.commands[:3] == [
        (("git", "status", "--porcelain"), Path("clone")),
        (("git", "fetch", "--tags", "origin"), Path("clone")),
        (("git", "merge", "--ff-only", "refs/tags/v0.3.0"), Path("clone")),
    ]
    assert "pip install -e ." in bench.said[1] and "in clone" in bench.said[1]
    assert bench.said[2] == "## 0.3.0" and bench.said[-1] == f"Notes: {PAGE}/notes"
    # The clone's own file is read, the site is not asked for it.
    assert bench.feed.asked == [10.0]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (" M a\x1b.py\n", r"1 uncommitted change \(first: M a.py\)"),
        ("?? b\n?? c\n", r"2 uncommitted changes \(first: \?\? b\)"),
    ],
)
def test_a_dirty_clone_is_refused_and_nothing_is_changed(status: str, words: str) -> None:
    bench = Bench(CLONE)
    bench.installation.said["status"] = status
    with pytest.raises(RefusedError, match=words):
        bench.run.update()
    assert len(bench.installation.commands) == 1


@pytest.mark.parametrize(("step", "ran"), [("status", 1), ("fetch", 2), ("merge", 3)])
def test_gits_exit_code_is_returned_and_later_steps_never_run(step: str, ran: int) -> None:
    bench = Bench(CLONE)
    bench.installation.codes[step] = 128
    assert bench.run.update() == 128
    assert len(bench.installation.commands) == ran
    assert "ended with 128" in bench.warned[0] and bench.said == []


def test_without_git_a_clone_is_refused() -> None:
    bench = Bench(CLONE)
    bench.installation.codes["git"] = NOT_RUN
    with pytest.raises(RefusedError, match="install git"):
        bench.run.update()


def test_an_editable_folder_that_is_no_clone_is_refused() -> None:
    bench = Bench(replace(CLONE, clone=None))
    with pytest.raises(RefusedError, match="which is no git clone"):
        bench.run.update()
    assert bench.installation.commands == []
