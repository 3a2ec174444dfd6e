"""This copy as its metadata describes it, in every form an installer leaves, and commands without a shell."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tensorfold.adapters.releases.installation import PackageInstallation
from tensorfold.application.ports.installation import NOT_RUN

PAGE = "https://github.com/owner/name"
BARE = "Metadata-Version: 2.4\nName: tensorfold\nVersion: 0.1.0\n"
METADATA = f"{BARE}Project-URL: Home, x\nProject-URL: Repository, {PAGE}\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, and no other."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def install(site: Path, direct: str | None = None, metadata: str = METADATA) -> None:
    info = site / "tensorfold-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(metadata)
    if direct is not None:
        (info / "direct_url.json").write_text(direct)


def editable(folder: Path, mark: object = True) -> str:
    return json.dumps({"url": folder.as_uri(), "dir_info": {"editable": mark}})


def test_a_copy_without_metadata_has_no_address(site: Path) -> None:
    facts = PackageInstallation("0.1.0").facts()
    assert (facts.version, facts.python, facts.address, facts.editable) == ("0.1.0", sys.executable, None, None)
    assert not facts.pip


def test_a_plain_install_has_its_address_and_no_folder(site: Path) -> None:
    install(site, json.dumps({"url": PAGE, "vcs_info": {"vcs": "git"}}))
    (site / "pip.py").write_text("")
    facts = PackageInstallation("0.1.0").facts()
    assert (facts.address, facts.editable, facts.clone, facts.pip) == (PAGE, None, None, True)
    assert PackageInstallation("0.1.0").changelog() is None


def test_a_package_that_names_no_repository_has_an_empty_address(site: Path) -> None:
    install(site, metadata=BARE)
    assert PackageInstallation("0.1.0").facts().address == ""


def test_what_a_broken_install_left_behind_has_an_empty_address(site: Path) -> None:
    install(site)
    (site / "tensorfold-0.1.0.dist-info" / "METADATA").unlink()
    (site / "tensorfold-0.1.0.dist-info" / "RECORD").write_text("")
    assert PackageInstallation("0.1.0").facts().address == ""


def test_an_editable_install_has_its_folder_and_the_clone_around_it(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "with space" / "deep"
    folder.mkdir(parents=True)
    install(site, editable(folder))
    copy = PackageInstallation("0.1.0")
    assert (copy.facts().editable, copy.changelog()) == (folder, None)
    (folder.parent / ".git").mkdir()
    (folder / "CHANGELOG.md").write_bytes(b"# Changes \xff")
    assert copy.facts().clone == folder.parent
    (folder / ".git").write_text("gitdir: elsewhere")
    assert copy.facts().clone == folder
    assert copy.changelog() == "# Changes \ufffd"


@pytest.mark.parametrize(
    "direct",
    [
        "", "{", "[]", "null", "3", "{}", '{"dir_info": {}}', '{"dir_info": {"editable": true}}',
        '{"dir_info": {"editable": true}, "url": 3}', '{"dir_info": {"editable": true}, "url": "https://x/y"}',
        '{"dir_info": {"editable": true}, "url": "file://["}', '{"dir_info": {"editable": false}, "url": "file:///x"}',
        '{"dir_info": {"editable": "yes"}, "url": "file:///x"}', '{"dir_info": [], "url": "file:///x"}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_no_installer_writes_is_a_plain_install(site: Path, direct: str) -> None:
    install(site, direct)
    assert PackageInstallation("0.1.0").facts().editable is None


def test_commands_run_without_a_shell_in_their_folder_and_tell_their_codes(tmp_path: Path) -> None:
    copy = PackageInstallation("0.1.0")
    script = "import os, sys; print(os.getcwd(), sys.argv[1:]); sys.exit(3)"
    words = ["; echo $HOME", "`x`", "*"]
    assert copy.read([sys.executable, "-c", script, *words], tmp_path) == (3, f"{tmp_path} {words}\n")
    assert copy.run([sys.executable, "-c", "raise SystemExit(7)"]) == 7
    assert copy.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == 137
    assert copy.run(["tensorfold-no-such-program"]) == NOT_RUN
    assert copy.read(["tensorfold-no-such-program"]) == (NOT_RUN, "")
