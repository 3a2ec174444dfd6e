"""A record's folder on this machine: private under any umask, no link followed, one lock, looks that change nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorfold.adapters.filesystem.record_files import Entry
from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles
from tests.tree import ROOT

UNDER_UMASK = """
import os, sys
from pathlib import Path
from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles
os.umask(int(sys.argv[2], 8))
files = PosixRecordFiles(Path(sys.argv[1]))
files.create_folder()
assert files.lock()
files.replace("identity", b"text")
files.create("00000001.ids")
files.append("00000001.ids", b"12345678")
files.sync("00000001.ids")
files.sync_folder()
"""


def _mode(path: Path) -> int:
    return path.lstat().st_mode & 0o7777


def _made(folder: Path) -> PosixRecordFiles:
    files = PosixRecordFiles(folder)
    files.create_folder()
    return files


@pytest.mark.parametrize("umask", ["000", "022", "027", "077", "177", "277", "777"])
@pytest.mark.slow
def test_modes_are_private_under_any_umask(tmp_path: Path, umask: str) -> None:
    folder = tmp_path / "cache" / "recall" / "record"
    environment = os.environ | {"PYTHONPATH": f"{ROOT / '.pkg'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", UNDER_UMASK, str(folder), umask]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [_mode(place) for place in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3
    assert {path.name: _mode(path) for path in folder.iterdir()} == dict.fromkeys(
        ("identity", "lock", "00000001.ids"), 0o600
    )


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    _made(tmp_path)
    assert _mode(tmp_path) == 0o755


def test_a_file_that_others_can_read_is_made_private_before_ids_go_into_it(tmp_path: Path) -> None:
    path = tmp_path / "00000001.ids"
    path.write_bytes(b"1234")
    path.chmod(0o644)
    files = _made(tmp_path)
    assert files.append(path.name, b"5678") == 4
    assert _mode(path) == 0o600 and path.read_bytes() == b"12345678"


@pytest.mark.parametrize("where", ["file", "file/below", "dangling"])
def test_a_folder_cannot_be_made_where_something_else_is(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(NotADirectoryError):
        PosixRecordFiles(tmp_path / where).create_folder()
    assert not (tmp_path / "nowhere").exists()


def test_another_process_may_make_the_folder_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def made_twice(path: str, mode: int) -> None:
        make(path, mode)
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", made_twice)
    _made(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


CALLS: dict[str, Callable[[PosixRecordFiles, str], object]] = {
    "read": lambda files, name: files.read(name, 100),
    "append": lambda files, name: files.append(name, b"1234"),
    "truncate": lambda files, name: files.truncate(name, 0),
    "sync": lambda files, name: files.sync(name),
}


@pytest.mark.parametrize("call", CALLS)
def test_links_folders_and_pipes_are_no_files(tmp_path: Path, call: str) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    folder = tmp_path / "record"
    files = _made(folder)
    (folder / "link").symlink_to(outside)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    for name in ("link", "folder", "pipe", "missing"):
        with pytest.raises(OSError):
            CALLS[call](files, name)
    assert outside.read_bytes() == b"precious"
    assert set(os.listdir(folder)) == {"link", "folder", "pipe"}


@pytest.mark.parametrize("make", [lambda path, to: path.symlink_to(to), lambda path, to: path.mkdir()])
def test_a_lock_that_is_no_plain_file_is_not_taken(tmp_path: Path, make: Callable[[Path, Path], None]) -> None:
    folder = tmp_path / "record"
    files = _made(folder)
    make(folder / "lock", tmp_path / "outside")
    with pytest.raises(OSError):
        files.lock()
    assert not (tmp_path / "outside").exists()


def test_a_pipe_as_a_lock_keeps_nobody_waiting(tmp_path: Path) -> None:
    files = _made(tmp_path)
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(OSError):
        files.lock()


def test_a_file_that_cannot_be_made_private_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _made(tmp_path)

    def fail(file: int, mode: int) -> None:
        raise OSError(errno.EPERM, "planted")

    assert files.entries() == []
    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(OSError, match="planted"):
        files.create("00000001.ids")
    assert len(os.listdir("/dev/fd")) == before


def test_a_new_file_takes_no_name_that_is_taken(tmp_path: Path) -> None:
    files = _made(tmp_path)
    (tmp_path / "00000001.ids").symlink_to(tmp_path / "outside")
    with pytest.raises(FileExistsError):
        files.create("00000001.ids")
    assert not (tmp_path / "outside").exists()


def test_entries_tell_sizes_and_plain_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"123")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "c").mkdir()
    if sys.platform != "darwin":  # A Mac's file system takes no name that is not UTF-8.
        (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"")
    files = PosixRecordFiles(tmp_path)
    for _ in range(2):
        found = {entry.name: entry for entry in files.entries()}
        assert found["a"] == Entry("a", 3, True) and set(found) == set(os.listdir(tmp_path))
        assert [found[name].regular for name in ("b", "c")] == [False, False]


def test_reading_stops_at_the_end_or_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    files = PosixRecordFiles(tmp_path)
    assert [files.read("a", most) for most in (0, 4, 10, 99)] == [b"", b"0123", b"0123456789", b"0123456789"]


def test_cutting_never_makes_a_file_longer(tmp_path: Path) -> None:
    files = _made(tmp_path)
    files.create("a")
    files.append("a", b"12345678")
    files.truncate("a", 100)
    assert (tmp_path / "a").read_bytes() == b"12345678"
    files.truncate("a", 4)
    assert (tmp_path / "a").read_bytes() == b"1234"


def test_a_file_is_replaced_whole_over_what_an_earlier_attempt_left(tmp_path: Path) -> None:
    files = _made(tmp_path)
    (tmp_path / "identity").write_bytes(b"old")
    (tmp_path / "identity.new").write_bytes(b"half an attempt that was longer")
    files.replace("identity", b"new")
    assert (tmp_path / "identity").read_bytes() == b"new" and os.listdir(tmp_path) == ["identity"]


def test_a_replacement_that_fails_leaves_the_old_content_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _made(tmp_path)
    (tmp_path / "identity").write_bytes(b"old")

    def fail(*args: object, **options: object) -> None:
        raise OSError(errno.EIO, "planted")

    for call in ("write", "fsync", "rename"):
        with monkeypatch.context() as planted:
            planted.setattr(os, call, fail)
            planted.delattr(fcntl, "F_FULLFSYNC", raising=False)
            with pytest.raises(OSError, match="planted"):
                files.replace("identity", b"new")
        assert (tmp_path / "identity").read_bytes() == b"old" and os.listdir(tmp_path) == ["identity"]


def test_a_mac_is_asked_to_write_through_its_disks_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    synced: list[int] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda file, request: asked.append(request))
    monkeypatch.setattr(os, "fsync", synced.append)
    files = _made(tmp_path)
    files.create("a")
    files.sync("a")
    assert asked == [51] and synced == []

    def unsupported(file: int, request: int) -> None:
        raise OSError(errno.ENOTSUP, "planted")

    monkeypatch.setattr(fcntl, "fcntl", unsupported)
    files.sync("a")
    assert len(synced) == 1


def test_a_folder_that_cannot_be_synced_is_no_fault_and_one_that_fails_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _made(tmp_path)
    number = errno.EINVAL

    def fail(file: int) -> None:
        raise OSError(number, "planted")

    monkeypatch.delattr(fcntl, "F_FULLFSYNC", raising=False)
    monkeypatch.setattr(os, "fsync", fail)
    files.sync_folder()
    number = errno.EIO
    with pytest.raises(OSError, match="planted"):
        files.sync_folder()


def test_one_of_several_holds_the_lock_until_it_lets_go(tmp_path: Path) -> None:
    first, second = _made(tmp_path), _made(tmp_path)
    assert first.lock() and first.lock() and not second.lock()
    assert (tmp_path / "lock").stat().st_size == 0 and _mode(tmp_path / "lock") == 0o600
    second.unlock()
    assert not second.lock()
    first.unlock()
    first.unlock()
    assert second.lock()


def test_no_child_inherits_a_record(tmp_path: Path) -> None:
    files = _made(tmp_path)
    assert files.lock()
    files.entries()
    held = [int(name) for name in os.listdir("/dev/fd") if _leads_into(int(name), tmp_path)]
    assert len(held) == 2 and not any(os.get_inheritable(file) for file in held)


def _leads_into(file: int, folder: Path) -> bool:
    try:
        found = os.fstat(file)
    except OSError:
        return False
    return any(os.path.samestat(found, place.stat()) for place in (folder, folder / "lock"))


def test_a_folder_is_present_until_it_is_removed_or_swapped(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    files = PosixRecordFiles(folder)
    assert not files.present()
    files.create_folder()
    assert files.present() and files.lock() and files.present()
    folder.rename(tmp_path / "aside")
    assert not files.present() and not files.replaced()
    folder.mkdir()
    assert not files.present() and files.replaced()
    files.create("00000001.ids")
    assert os.listdir(folder) == [], "the folder at the path is another one"
    folder.rmdir()
    (tmp_path / "aside").rename(folder)
    assert files.present() and not files.replaced()


@pytest.mark.parametrize("anew", [False, True])
def test_a_lock_that_was_removed_is_not_held_any_more(tmp_path: Path, anew: bool) -> None:
    files = _made(tmp_path)
    assert not files.replaced() and files.lock() and files.present() and not files.replaced()
    (tmp_path / "lock").unlink()
    if anew:
        assert _made(tmp_path).lock()
    assert not files.present() and files.replaced() is anew


def test_a_lock_made_anew_while_it_is_taken_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _made(tmp_path)
    flock = fcntl.flock

    def swapped(file: int, how: int) -> None:
        (tmp_path / "lock").unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", swapped)
    assert not files.lock()


def test_a_disk_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _made(tmp_path)

    def fail(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "planted")

    assert files.entries() == []
    monkeypatch.setattr(fcntl, "flock", fail)
    before = len(os.listdir("/dev/fd"))
    with pytest.raises(OSError, match="planted"):
        files.lock()
    assert len(os.listdir("/dev/fd")) == before


def test_a_folder_may_be_reached_over_a_link(tmp_path: Path) -> None:
    (tmp_path / "big disk").mkdir()
    (tmp_path / "record").symlink_to(tmp_path / "big disk")
    files = _made(tmp_path / "record")
    assert files.lock() and files.present()
    assert os.listdir(tmp_path / "big disk") == ["lock"]
