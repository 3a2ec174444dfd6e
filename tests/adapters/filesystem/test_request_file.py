"""The file of requests on a real disk: its owner's alone, made again when it is moved, whole lines after a torn one."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from tensorfold.adapters.filesystem.request_file import PlainRequestFile
from tensorfold.application.ports.checkpoints import RefusedError


def made(path: Path) -> PlainRequestFile:
    return PlainRequestFile(path, "TENSORFOLD_REQUEST_LOG")


def refusal(path: Path) -> str:
    with pytest.raises(RefusedError) as refused:
        made(path).append(b"{}\n")
    return refused.value.message.replace(str(path), "PATH")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_the_file_is_its_owners_alone_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        file = made(tmp_path / "requests")
        for line in (b"", b"one\n", b"two\n"):
            file.append(line)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "requests").stat().st_mode) == 0o600
    assert (tmp_path / "requests").read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o622])
def test_a_file_that_others_may_use_is_refused_and_left_as_it_is(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "requests"
    path.write_bytes(b"kept\n")
    path.chmod(mode)
    assert refusal(path) == (f"TENSORFOLD_REQUEST_LOG PATH has mode {mode:04o}, so others may use it; `chmod 600` it.")
    assert path.read_bytes() == b"kept\n"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert refusal(tmp_path / "pipe") == f"TENSORFOLD_REQUEST_LOG PATH cannot be written (error {errno.ENXIO})."
    assert refusal(tmp_path) == f"TENSORFOLD_REQUEST_LOG PATH cannot be written (error {errno.EISDIR})."
    assert refusal(Path("/dev/null")) == "TENSORFOLD_REQUEST_LOG PATH is not a plain file."
    missing = refusal(tmp_path / "none" / "requests")
    assert missing == "TENSORFOLD_REQUEST_LOG PATH cannot be made: its folder is not there."
    assert "null character" in refusal(tmp_path / "a\0b")


def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*given: object) -> int:
        raise PermissionError(errno.EACCES, "denied")

    # Root, as which some run the tests, may write everywhere.
    monkeypatch.setattr(os, "open", denied)
    told = "TENSORFOLD_REQUEST_LOG PATH may not be written by the user that runs the server."
    assert refusal(tmp_path / "requests") == told


def test_a_file_that_is_moved_away_is_begun_again(tmp_path: Path) -> None:
    file = made(tmp_path / "requests")
    file.append(b"one\n")
    os.replace(tmp_path / "requests", tmp_path / "requests.1")
    file.append(b"two\n")
    assert [(tmp_path / name).read_bytes() for name in ("requests.1", "requests")] == [b"one\n", b"two\n"]


def test_a_line_behind_one_that_broke_off_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, write, room = made(tmp_path / "requests"), os.write, [4]

    def full(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        count = write(descriptor, data[: room[0]])
        room[0] -= count
        return count

    file.append(b"1\n")
    monkeypatch.setattr(os, "write", full)
    for _ in range(2):
        with pytest.raises(RefusedError, match=f"cannot be written \\(error {errno.ENOSPC}\\)"):
            file.append(b"broken off\n")
    monkeypatch.setattr(os, "write", write)
    file.append(b"")
    file.append(b"2\n")
    file.append(b"3\n")
    assert (tmp_path / "requests").read_bytes() == b"1\nbrok\n2\n3\n"


def test_lines_of_several_threads_stay_whole(tmp_path: Path) -> None:
    file = made(tmp_path / "requests")
    lines = [b"%d" % number * 20_000 + b"\n" for number in range(8)]

    def write(line: bytes) -> None:
        for _ in range(5):
            file.append(line)

    threads = [threading.Thread(target=write, args=(line,)) for line in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((tmp_path / "requests").read_bytes().splitlines(keepends=True)) == sorted(lines * 5)
