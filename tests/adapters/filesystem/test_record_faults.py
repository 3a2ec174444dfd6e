"""Every call on the folder fails in every way a disk knows: the record pauses with a reason, loses nothing that it told
of, and goes on by itself once the disk does.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tensorfold.application.ports.checkpoints import RefusedError
from tests.adapters.filesystem.records import CHUNK, CHUNKS, Bench, chunk, in_memory, on_disk, pieces, record_of, run
from tests.contracts.candidates import sentence
from tests.fakes.record_files import MemoryFolder, MemoryRecordFiles

NUMBERS = (errno.ENOSPC, errno.EIO, errno.EROFS)
CALLS = ("present", "append", "create", "sync", "sync_folder", "remove", "truncate")


def _full(bench: Bench) -> None:
    """Chunks as many as there may be, the newest full, so that the next piece needs every call."""
    for at in range(CHUNKS):
        bench.store.append(run(CHUNK, 1000 * at))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_pauses_and_the_next_piece_goes_on(call: str, number: int) -> None:
    bench = in_memory()
    bench.store.open()
    _full(bench)
    before = pieces(bench.store)
    bench.fail(call, number=number)
    for _ in range(3):
        added = bench.store.append(run(150, 30_000))
        assert bench.store.state().state in ("paused", "on")
        for part in added.parts:
            assert part.ids.tolist() in pieces(bench.store)
    state = bench.store.state()
    if call == "truncate":
        assert state.state == "on", "nothing had to be cut"
        return
    assert state.state == "paused" and state.reason and len(bench.log) <= 2
    bench.heal()
    added = bench.store.append(run(150, 20_000))
    assert len(added.parts) == 2 and bench.store.state().state == "on" and bench.store.state().reason == ""
    assert bench.log[-1] == "recall: the record is added to again"
    found = pieces(bench.store)
    assert [part.ids.tolist() for part in added.parts] == found[-2:]
    assert all(piece in [*before, *found] for piece in found)


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("short", range(0, 84, 7))
def test_a_write_that_falls_short_leaves_nothing(short: int, quiet: bool) -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(20))
    bench.files.short, bench.files.quiet = short, quiet
    bench.fail("append", number=errno.ENOSPC)
    size = bench.store.state().bytes_on_disk
    assert bench.store.append(run(20, 5000)).parts == ()
    state = bench.store.state()
    assert (state.state, state.bytes_on_disk) == ("paused", size)
    assert "could not be written" in state.reason and pieces(bench.store) == [run(20).tolist()]
    bench.heal()
    assert bench.store.sync().state == "paused", "only a piece shows that the disk takes ids again"
    (part,) = bench.store.append(run(20, 7000)).parts
    assert part.offset == 21 and pieces(bench.store) == [run(20).tolist(), run(20, 7000).tolist()]


def _torn(bench: Bench) -> str:
    """One piece, and half of another that could not be cut off; the chunk's name."""
    bench.store.open()
    (part,) = bench.store.append(run(20)).parts
    bench.files.short = 40
    bench.fail("append", "truncate", number=errno.EIO)
    assert bench.store.append(run(20, 5000)).parts == ()
    return f"{part.sequence:08d}.ids"


def test_nothing_is_added_behind_a_write_that_could_not_be_cut_off() -> None:
    bench = in_memory()
    name = _torn(bench)
    bench.fail("truncate", number=errno.EIO)
    for _ in range(2):
        assert bench.store.append(run(20, 6000)).parts == ()
        assert bench.store.state().reason == f"{name} could not be cut back: the disk reported an error"
    bench.heal()
    bench.store.append(run(20, 7000))
    assert pieces(bench.store) == [run(20).tolist(), run(20, 7000).tolist()]


def test_a_cut_is_durable_before_anything_is_written_behind_it() -> None:
    bench = in_memory()
    name = _torn(bench)
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles)
    bench.heal()
    files.calls.clear()
    bench.store.append(run(20, 7000))
    changes = [call for call, of in files.calls if of == name]
    assert changes[:3] == ["truncate", "sync", "append"]


def test_a_torn_chunk_that_vanishes_is_no_fault_any_more() -> None:
    bench = in_memory()
    name = _torn(bench)
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles) and files.folder.contents is not None
    del files.folder.contents[name]
    bench.heal()
    assert len(bench.store.append(run(20, 7000)).parts) == 1
    assert pieces(bench.store) == [run(20, 7000).tolist()]


def test_what_a_cut_off_server_left_half_written_is_seen_at_the_next_start() -> None:
    bench = in_memory()
    _torn(bench)
    bench.heal()
    later = bench.another()
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles)
    files.folder.holder = None
    later.open()
    later.append(run(20, 7000))
    assert pieces(later) == [run(20).tolist(), run(10, 5000).tolist(), run(20, 7000).tolist()]


def test_ids_that_do_not_become_durable_pause_until_they_do() -> None:
    bench = in_memory()
    bench.store.open()
    (part,) = bench.store.append(run(20)).parts
    bench.clock.advance(6)
    bench.fail("sync", number=errno.EIO)
    for _ in range(3):
        state = bench.store.sync()
        assert state.state == "paused" and f"{part.sequence:08d}.ids could not be made durable" in state.reason
    assert bench.store.append(run(20)).parts == () and len(bench.log) == 1
    bench.heal()
    assert bench.store.sync().state == "on"
    assert len(bench.store.append(run(20)).parts) == 1


def test_faults_at_the_end_are_told_and_the_lock_goes_back(tmp_path: Path) -> None:
    bench = on_disk(tmp_path)
    bench.store.open()
    bench.store.append(run(20))
    bench.fail("sync", number=errno.EIO)
    bench.store.close()
    assert len(bench.log) == 1 and "durable" in bench.log[0]
    assert on_disk(tmp_path).store.open().state == "on"
    bench.fail("unlock", number=errno.EIO)
    bench.store.close()
    assert "lock" in bench.log[-1]


# Opening


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("call", ["create_folder", "lock", "replace", "sync_folder", "entries"])
def test_a_fault_at_the_start_that_may_pass_pauses_and_the_record_opens_later(call: str, number: int) -> None:
    bench = in_memory()
    bench.fail(call, number=number)
    state = bench.store.open()
    assert state.state == "paused" and state.reason and len(bench.log) == 1
    assert bench.store.append(run(20)).parts == () and pieces(bench.store) == []
    assert bench.store.sync().state == "paused" and len(bench.log) == 1
    bench.heal()
    assert bench.store.sync().state == "on"
    bench.store.append(run(20))
    assert pieces(bench.store) == [run(20).tolist()]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOLCK, errno.ELOOP])
@pytest.mark.parametrize("call", ["create_folder", "lock", "replace"])
def test_a_fault_at_the_start_that_somebody_must_mend_is_refused(call: str, number: int) -> None:
    folder = MemoryFolder({})
    bench = in_memory(folder)
    bench.fail(call, number=number)
    with pytest.raises(RefusedError) as refusal:
        bench.store.open()
    sentence(refusal.value)
    assert "--recall-dir" in refusal.value.message and "--recall-read-only" in refusal.value.message
    assert folder.holder is None


def test_a_folder_that_a_reader_cannot_list_is_refused() -> None:
    bench = in_memory(record_of({}))
    bench.fail("entries", number=errno.EACCES)
    with pytest.raises(RefusedError) as refusal:
        bench.another(read_only=True).open()
    sentence(refusal.value)
    assert "permission was denied" in refusal.value.message


def test_a_record_taken_late_may_turn_out_to_be_anothers() -> None:
    folder = record_of({1: chunk(run(20))})
    bench = in_memory(folder)
    bench.fail("lock", number=errno.EIO)
    assert bench.store.open().state == "paused"
    bench.heal()
    folder.holder = "another server"
    assert bench.store.sync().state == "second" and bench.store.append(run(20)).parts == ()
    assert bench.store.delete_all().state == "second" and folder.contents is not None


def test_emptying_a_record_that_another_server_took_meanwhile_leaves_it_alone() -> None:
    folder = record_of({1: chunk(run(20))})
    bench = in_memory(folder)
    bench.fail("lock", number=errno.EIO)
    bench.store.open()
    bench.heal()
    folder.holder = "another server"
    assert bench.store.delete_all().state == "second"
    assert folder.contents is not None and "00000001.ids" in folder.contents


def test_a_record_that_was_replaced_under_the_server_is_not_emptied() -> None:
    folder = MemoryFolder()
    bench = in_memory(folder)
    bench.store.open()
    bench.store.append(run(20))
    held, folder.anew = dict(folder.contents or {}), True
    state = bench.store.delete_all()
    assert state.state == "delete-failed" and "removed or replaced" in state.reason
    assert folder.contents == held and bench.store.append(run(30)).parts == ()
    folder.anew = False
    assert bench.store.delete_all().state == "on" and pieces(bench.store) == []


def test_a_folder_that_cannot_be_looked_at_is_not_emptied() -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(20))
    bench.fail("replaced", number=errno.EIO)
    state = bench.store.delete_all()
    assert state.state == "delete-failed" and state.reason.endswith("the disk reported an error")


def test_a_record_taken_late_may_turn_out_to_be_of_another_tokenizer() -> None:
    folder = record_of({1: chunk(run(20))}, identity=b"?")
    bench = in_memory(folder)
    bench.fail("lock", number=errno.EIO)
    bench.store.open()
    bench.heal()
    assert bench.store.sync().state == "paused" and "malformed" in bench.store.state().reason
    assert bench.store.append(run(20)).parts == () and pieces(bench.store) == [] and folder.holder is None
    assert bench.store.delete_all().state == "delete-failed"
    assert folder.contents is not None and "00000001.ids" in folder.contents


def test_a_budget_that_cannot_be_kept_at_the_start_pauses_and_the_newest_are_read() -> None:
    bench = in_memory(record_of({number: chunk(run(20, number)) for number in range(1, 6)}))
    bench.fail("remove", number=errno.EPERM)
    assert bench.store.open().state == "paused" and "00000001.ids" in bench.store.state().reason
    assert [one.sequence for one in bench.store.chunks()] == [3, 4, 5]
    bench.heal()
    assert bench.store.append(run(30)).evicted == (1, 2) and bench.store.state().state == "on"


def test_a_chunk_that_is_too_long_and_cannot_be_cut_is_read_up_to_its_end() -> None:
    bench = in_memory(record_of({1: chunk(run(CHUNK), run(50)), 2: chunk(run(20))}))
    bench.fail("truncate", number=errno.EPERM)
    assert bench.store.open().state == "on" and "too long" not in bench.store.state().reason
    assert pieces(bench.store) == [run(CHUNK).tolist(), run(20).tolist()]
    assert len(bench.log) == 2 and all("00000001.ids" in line for line in bench.log)


# Emptying


@pytest.mark.parametrize("number", [errno.EPERM, errno.EIO, errno.EROFS])
def test_a_chunk_that_stays_is_named_and_nothing_is_added_until_all_are_gone(number: int) -> None:
    bench = in_memory()
    bench.store.open()
    first, second, third = (bench.store.append(run(CHUNK, at)).parts[0].sequence for at in range(3))
    bench.fail("remove", number=number, name=f"{second:08d}")
    for _ in range(2):
        state = bench.store.delete_all()
        assert state.state == "delete-failed" and state.reason.startswith(f"{second:08d}.ids could not be removed")
    assert [one.sequence for one in bench.store.chunks()] == [second] and state.bytes_on_disk == 4 * CHUNK
    assert first < second < third and len(bench.log) == 1
    bench.heal()
    bench.free = 0
    assert bench.store.append(run(20)).parts == () and bench.store.sync().state == "delete-failed"
    bench.free = 1 << 40
    assert bench.store.delete_all().state == "on" and bench.store.state().bytes_on_disk == 0
    assert len(bench.store.append(run(20)).parts) == 1


@pytest.mark.parametrize("call", ["entries", "sync_folder"])
def test_emptying_that_may_not_last_is_not_called_done(call: str) -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(20))
    bench.fail(call, number=errno.EIO)
    state = bench.store.delete_all()
    assert state.state == "delete-failed" and "the disk reported an error" in state.reason
    bench.heal()
    assert bench.store.delete_all().state == "on"


def test_a_record_that_could_not_be_emptied_stays_so_whatever_fails_next() -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(20))
    bench.fail("entries", "sync", number=errno.EIO)
    state = bench.store.delete_all()
    assert state.state == "delete-failed"
    bench.clock.advance(6)
    assert bench.store.sync() == state
    bench.heal()
    assert bench.store.delete_all().state == "on"


def test_a_record_that_was_never_taken_is_not_called_emptied() -> None:
    folder = record_of({1: chunk(run(20))})
    bench = in_memory(folder)
    bench.fail("lock", number=errno.EIO)
    bench.store.open()
    assert bench.store.delete_all().state == "delete-failed"
    bench.heal()
    assert bench.store.append(run(20)).parts == ()
    assert bench.store.delete_all().state == "on"
    assert folder.contents is not None and "00000001.ids" not in folder.contents


def test_emptying_ends_a_pause_that_a_chunk_caused() -> None:
    bench = in_memory()
    bench.store.open()
    _full(bench)
    bench.fail("create", number=errno.EFBIG)
    bench.store.append(run(20))
    assert bench.store.state().state == "paused"
    bench.heal()
    assert bench.store.delete_all().state == "on"


def test_an_unknown_cause_is_named_by_its_symbol() -> None:
    bench = in_memory()
    bench.store.open()
    bench.fail("append", number=errno.EXDEV)
    bench.store.append(run(20))
    assert bench.store.state().reason.endswith("could not be written: EXDEV")
    bench.fail("append", number=0)
    bench.store.append(run(20))
    assert bench.store.state().reason.endswith("the reason is unknown")
