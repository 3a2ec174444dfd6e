"""Several servers on one folder, as processes of their own; and readers, who leave no trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.adapters.filesystem.records import VOCABULARY, chunk, on_disk, pieces, run
from tests.tree import ROOT

WRITER = """
import sys, time
from pathlib import Path
from tests.adapters.filesystem.records import on_disk, run
bench = on_disk(Path(sys.argv[1]))
print(bench.store.open().state, flush=True)
bench.store.append(run(20))
print(len(list(bench.store.chunks())), flush=True)
sys.stdin.readline()
bench.store.append(run(1500))
bench.store.close()
"""


@contextmanager
def _writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the record and has written one piece; a line ends it."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / '.pkg'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert [child.stdout.readline() for _ in range(2)] == ["on\n", "1\n"]
            yield child
        finally:
            child.kill()


def _traces(folder: Path) -> dict[str, tuple[int, int, int, int]]:
    """Everything a reader could have changed: modes, sizes, inodes and times of change."""
    places = [folder.parent, folder, *folder.iterdir()] if folder.exists() else [folder.parent]
    looks = {str(place): place.lstat() for place in places}
    return {name: (look.st_mode, look.st_size, look.st_ino, look.st_mtime_ns) for name, look in looks.items()}


@pytest.mark.slow
def test_a_second_server_reads_and_a_third_becomes_the_writer_when_the_first_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    second = on_disk(folder)
    with _writer(folder) as child:
        assert second.store.open().state == "second"
        before = _traces(folder)
        assert pieces(second.store) == [run(20).tolist()]
        assert second.store.append(run(30)).parts == ()
        assert second.store.delete_all().state == second.store.sync().state == "second"
        assert _traces(folder) == before
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert second.store.sync().state == "second" and second.store.append(run(30)).parts == ()
    third = on_disk(folder)
    assert third.store.open().state == "on"
    assert len(third.store.append(run(30)).parts) == 1
    assert pieces(third.store) == pieces(second.store) == [run(20).tolist(), run(30).tolist()]
    second.store.close()
    assert on_disk(folder).store.open().state == "second", "the one that closed never had the lock"


@pytest.mark.slow
def test_a_reader_may_come_while_another_server_writes(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    with _writer(folder) as child:
        bench = on_disk(folder)
        reader = bench.another(read_only=True)
        assert reader.open().state == "read-only"
        chunks = reader.chunks()
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.close()
        assert child.wait() == 0
        assert all(-1 <= token < VOCABULARY for one in chunks for token in one.ids.tolist())
        assert len(list(reader.chunks())) == 3


def test_a_reader_leaves_no_trace(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    writer = on_disk(folder)
    writer.store.open()
    writer.store.append(run(150))
    writer.store.close()
    (folder / "00000001.ids").write_bytes(chunk(run(20))[:-3] + bytes(4000))
    (folder / "00000002.ids").write_bytes(b"")
    (folder / "lock").unlink()
    folder.chmod(0o755)
    before = _traces(folder)
    bench = on_disk(folder)
    reader = bench.another(read_only=True)
    reader.open()
    assert len(pieces(reader)) == 2
    reader.append(run(30))
    reader.sync()
    reader.delete_all()
    reader.close()
    assert _traces(folder) == before


@pytest.mark.parametrize("where", ["record", "nowhere/record"])
def test_a_reader_of_a_missing_folder_does_not_make_it(tmp_path: Path, where: str) -> None:
    before = _traces(tmp_path)
    reader = on_disk(tmp_path / where).another(read_only=True)
    assert reader.open().state == "read-only"
    assert pieces(reader) == [] and reader.append(run(30)).parts == ()
    assert reader.sync().state == reader.delete_all().state == "read-only"
    reader.close()
    assert _traces(tmp_path) == before and list(tmp_path.iterdir()) == []


def test_a_reader_sees_a_record_that_was_begun_after_it_opened(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    reader = on_disk(folder).another(read_only=True)
    reader.open()
    writer = on_disk(folder)
    writer.store.open()
    writer.store.append(run(20))
    assert pieces(reader) == [run(20).tolist()]
    writer.store.close()
