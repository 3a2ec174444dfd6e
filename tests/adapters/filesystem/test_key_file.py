"""A key file on the disk: whatever stands in its place is read in bounded memory or refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensorfold.adapters.filesystem.key_file import MOST_BYTES, FolderKeyFile
from tensorfold.application.ports.checkpoints import RefusedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "keys"
    made.write_bytes(b"one\n")
    made.chmod(0o600)
    return made


def refusal(path: Path) -> str:
    file = FolderKeyFile(path)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with pytest.raises(RefusedError) as refused:
        file.read()
    assert before == (len(os.listdir("/proc/self/fd")) if before else 0)
    assert refused.value.message.startswith(f"--api-key-file {path} ") and refused.value.message.endswith(".")
    return refused.value.message


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_private_file_is_read(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert FolderKeyFile(path).read() == b"one\n"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o601])
def test_a_file_that_others_may_use_is_refused_with_its_mode(path: Path, mode: int) -> None:
    path.chmod(mode)
    assert refusal(path).endswith(f" has mode {mode:04o}, so others may use it; `chmod 600` it.")


def test_a_look_tells_every_way_in_which_files_change(path: Path, tmp_path: Path) -> None:
    file = FolderKeyFile(path)
    stamps = [file.stamp()]
    assert file.stamp() == stamps[0]

    def changed() -> None:
        stamps.append(file.stamp())

    with path.open("ab") as more:
        more.write(b"two\n")
    changed()
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    os.replace(other, path)
    changed()
    os.utime(path, ns=(1, 1))
    changed()
    path.unlink()
    changed()
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"one\n")
        (tmp_path / f"link-{name}").symlink_to(name)
        os.replace(tmp_path / f"link-{name}", path)
        changed()
    assert len(set(stamps)) == len(stamps) and stamps[4] is None


def test_what_is_no_file_to_read_is_refused_by_name(path: Path, tmp_path: Path) -> None:
    assert "is not there" in refusal(tmp_path / "nowhere")
    assert "is not a plain file" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "is not a plain file" in refusal(tmp_path / "pipe")
    assert "is not a plain file" in refusal(Path("/dev/zero"))
    assert "cannot be read (error " in refusal(path / "below")
    (tmp_path / "loop").symlink_to("loop")
    assert "cannot be read (error " in refusal(tmp_path / "loop")
    assert FolderKeyFile(tmp_path / "loop").stamp() is None
    assert "null character" in refusal(tmp_path / "a\0b")
    assert FolderKeyFile(tmp_path / "a\0b").stamp() is None


def test_a_file_that_is_too_large_is_refused_with_its_size(path: Path) -> None:
    path.write_bytes(b"k" * MOST_BYTES)
    assert len(FolderKeyFile(path).read()) == MOST_BYTES
    os.truncate(path, 1 << 40)
    assert f"holds {1 << 40} bytes, more than the {MOST_BYTES}" in refusal(path)


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*words: object) -> int:
        raise PermissionError(13, "denied")

    monkeypatch.setattr("tensorfold.adapters.filesystem.key_file.os.open", denied)
    assert "may not be read by the user that runs the server" in refusal(path)
