"""A record on disk: what its files hold, when they become durable, and in which state it is."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tensorfold.adapters.filesystem.record_store import LEAST_FREE_BYTES
from tensorfold.domain.recall.layout import CHUNK_IDS, LEAD_IDS
from tests.adapters.filesystem.records import CHUNK, CHUNKS, GIB, Bench, chunk, in_memory, on_disk, pieces, run
from tests.adapters.filesystem.records import record_of as record
from tests.fakes.record_files import MemoryFolder, MemoryRecordFiles


def _calls(bench: Bench) -> list[tuple[str, str]]:
    """What was done to the folder since the last look."""
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles)
    calls = list(files.calls)
    files.calls.clear()
    return calls


def _contents(bench: Bench) -> dict[str, bytes]:
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles)
    assert files.folder.contents is not None
    return files.folder.contents


def _chunk_names(bench: Bench) -> list[str]:
    return sorted(name for name in _contents(bench) if name.endswith(".ids"))


# Bytes


def test_a_piece_is_ids_plus_one_and_a_zero_in_a_file_of_four_bytes_an_id(tmp_path: Path) -> None:
    bench = on_disk(tmp_path / "record")
    bench.store.open()
    (part,) = bench.store.append(run(20)).parts
    bench.store.append(run(30, 0))
    bench.store.close()
    assert set(os.listdir(tmp_path / "record")) == {"identity", "lock", f"{part.sequence:08d}.ids"}
    data = (tmp_path / "record" / f"{part.sequence:08d}.ids").read_bytes()
    assert data == chunk(run(20), run(30, 0)) and len(data) == 4 * 52
    assert (tmp_path / "record" / "lock").read_bytes() == b""


def test_a_piece_and_its_end_are_one_write() -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(20))
    _calls(bench)
    (part,) = bench.store.append(run(30)).parts
    assert _calls(bench) == [("append", f"{part.sequence:08d}.ids")]


def test_a_chunk_of_the_product_holds_a_mebi_of_ids(tmp_path: Path) -> None:
    bench = on_disk(tmp_path)
    store = bench.another(budget_bytes=64 << 20, chunk_ids=CHUNK_IDS)
    store.open()
    added = store.append(np.arange(CHUNK_IDS + 1000, dtype=np.int32) % 50_000)
    assert [len(part.ids) for part in added.parts] == [CHUNK_IDS, 1000 + LEAD_IDS]
    sizes = [(tmp_path / f"{part.sequence:08d}.ids").stat().st_size for part in added.parts]
    assert sizes == [4 << 20, 4 * (1000 + LEAD_IDS + 1)]


def test_an_end_that_was_lost_is_written_before_the_next_piece() -> None:
    bench = in_memory(record({7: chunk(run(20), end=False)}))
    bench.store.open()
    (part,) = bench.store.append(run(30)).parts
    assert (part.sequence, part.offset) == (7, 21)
    assert _contents(bench)["00000007.ids"] == chunk(run(20), run(30))


def test_where_no_place_for_an_end_is_left_the_chunk_is_the_end() -> None:
    bench = in_memory()
    bench.store.open()
    whole = bench.store.append(run(CHUNK))
    assert [len(part.ids) for part in whole.parts] == [CHUNK]
    (again,) = bench.store.append(run(20)).parts
    assert (again.sequence, again.offset) == (whole.parts[0].sequence + 1, 0)
    assert _contents(bench)[_chunk_names(bench)[0]] == chunk(run(CHUNK), end=False)


@pytest.mark.parametrize("left", [0, 1, 16])
def test_a_lost_end_and_a_short_rest_of_a_chunk_are_given_up(left: int) -> None:
    bench = in_memory(record({7: chunk(run(CHUNK - left), end=False)}))
    bench.store.open()
    (part,) = bench.store.append(run(30)).parts
    assert (part.sequence, part.offset) == (8, 0)


def test_an_empty_file_is_where_the_record_goes_on() -> None:
    bench = in_memory(record({7: b""}))
    bench.store.open()
    assert [(part.sequence, part.offset) for part in bench.store.append(run(20)).parts] == [(7, 0)]


def test_what_is_no_id_is_written_as_an_end() -> None:
    bench = in_memory()
    bench.store.open()
    odd = run(40)
    odd[[10, 20]] = (-5, 2_000_000)
    bench.store.append(odd)
    assert pieces(bench.store) == [odd[:10].tolist(), odd[11:20].tolist(), odd[21:].tolist()]


# Durability


def test_full_chunks_are_durable_before_the_next_is_begun() -> None:
    bench = in_memory()
    bench.store.open()
    _calls(bench)
    first, second = (f"{part.sequence:08d}.ids" for part in bench.store.append(run(150)).parts)
    expected = [("create", first), ("sync_folder", ""), ("append", first), ("sync", first)]
    assert _calls(bench) == [*expected, ("create", second), ("sync_folder", ""), ("append", second)]


def test_a_chunk_filled_to_the_last_id_is_durable_at_once() -> None:
    bench = in_memory()
    bench.store.open()
    (part,) = bench.store.append(run(CHUNK)).parts
    assert _calls(bench)[-1] == ("sync", f"{part.sequence:08d}.ids")


def test_what_was_added_is_durable_after_five_seconds_without_more() -> None:
    bench = in_memory()
    bench.store.open()
    (part,) = bench.store.append(run(20)).parts
    _calls(bench)
    for seconds in (0.0, 4.9):
        bench.clock.advance(seconds)
        bench.store.sync()
        assert _calls(bench) == []
    bench.clock.advance(0.1)
    bench.store.sync()
    assert _calls(bench) == [("sync", f"{part.sequence:08d}.ids")]
    bench.clock.advance(100.0)
    bench.store.sync()
    assert _calls(bench) == []


def test_a_busy_server_makes_durable_what_has_waited_for_ten_seconds() -> None:
    bench = in_memory()
    bench.store.open()
    synced = []
    for at in range(45):
        bench.store.append(run(20, at))
        bench.clock.advance(0.5)
        if any(call == "sync" for call, _ in _calls(bench)):
            synced.append(at)
    assert all(later - earlier <= 20 for earlier, later in zip([0, *synced], synced, strict=False)) and len(synced) >= 2


def test_closing_makes_everything_durable_and_gives_the_lock_back() -> None:
    bench = in_memory()
    bench.store.open()
    (part,) = bench.store.append(run(20)).parts
    _calls(bench)
    bench.store.close()
    bench.store.close()
    assert _calls(bench) == [("sync", f"{part.sequence:08d}.ids")]
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles) and files.folder.holder is None
    assert bench.store.state().state == "off"
    assert bench.store.append(run(20)).parts == () and list(bench.store.chunks()) == []
    assert bench.store.delete_all().state == bench.store.sync().state == "off"


def test_what_a_killed_server_left_is_made_durable_at_the_next_start() -> None:
    bench = in_memory(record({7: chunk(run(20))}))
    bench.store.open()
    assert ("sync", "00000007.ids") in _calls(bench)


def test_a_record_can_be_opened_again_after_closing() -> None:
    bench = in_memory()
    for at in range(3):
        bench.store.open()
        bench.store.append(run(20 + at))
        bench.store.close()
    assert bench.store.open().state == "on"
    assert pieces(bench.store) == [run(20 + at).tolist() for at in range(3)]


# Numbers


def test_numbers_are_not_used_again_after_the_record_was_emptied() -> None:
    bench = in_memory()
    bench.store.open()
    used = {part.sequence for part in bench.store.append(run(300)).parts}
    for _ in range(2):
        bench.store.delete_all()
        fresh = {part.sequence for part in bench.store.append(run(300)).parts}
        assert min(fresh) > max(used)
        used |= fresh
    bench.store.delete_all()
    bench.store.close()
    bench.clock.advance(3600)
    later = bench.another()
    later.open()
    assert later.append(run(20)).parts[0].sequence > max(used)


@pytest.mark.parametrize("wall", [-5.0, 0.0, 1e15])
def test_any_calendar_gives_a_first_number(wall: float) -> None:
    bench = in_memory()
    bench.clock.set_wall(wall)
    bench.store.open()
    (part,) = bench.store.append(run(20)).parts
    assert 1 <= part.sequence < 99_999_999


# Space


def test_with_less_than_four_gibibytes_free_nothing_is_added_until_there_is_more() -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(20))
    _calls(bench)
    bench.free = LEAST_FREE_BYTES - 1
    for _ in range(3):
        assert bench.store.append(run(30)).parts == ()
        assert bench.store.sync() == bench.store.state()
    state = bench.store.state()
    assert (state.state, state.bytes_on_disk) == ("paused", 84) and "under 4 GiB" in state.reason
    assert _calls(bench) == [] and len(bench.log) == 1 and "under 4 GiB" in bench.log[0]
    assert pieces(bench.store) == [run(20).tolist()], "what is there can still be read"
    bench.free = LEAST_FREE_BYTES
    assert bench.store.sync().state == "on"
    assert len(bench.store.append(run(30)).parts) == 1
    assert len(bench.log) == 2


def test_without_a_look_between_them_a_piece_is_added_as_soon_as_there_is_space() -> None:
    bench = in_memory()
    bench.free = GIB
    assert bench.store.open().state == "paused"
    bench.free = 5 * GIB
    assert len(bench.store.append(run(30)).parts) == 1
    assert bench.store.state().state == "on"


def test_a_low_disk_does_not_keep_ids_from_becoming_durable_or_going() -> None:
    bench = in_memory()
    bench.store.open()
    (part,) = bench.store.append(run(20)).parts
    bench.free = GIB
    bench.clock.advance(6)
    _calls(bench)
    bench.store.sync()
    assert _calls(bench) == [("sync", f"{part.sequence:08d}.ids")]
    state = bench.store.delete_all()
    assert (state.state, state.bytes_on_disk) == ("paused", 0) and _chunk_names(bench) == []


def test_a_budget_that_shrank_is_kept_also_on_a_low_disk() -> None:
    bench = in_memory(record({number: chunk(run(20)) for number in range(1, 8)}))
    bench.free = GIB
    assert bench.store.open().state == "paused"
    assert _chunk_names(bench) == [f"{number:08d}.ids" for number in (5, 6, 7)]


# Vanishing


def test_a_vanished_folder_pauses_and_is_not_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    bench = on_disk(folder)
    bench.store.open()
    bench.store.append(run(20))
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert bench.store.append(run(30)).parts == ()
    assert bench.store.sync().state == "paused" and "removed or replaced" in bench.store.state().reason
    assert list(bench.store.chunks()) == []
    emptied = bench.store.delete_all()
    assert (emptied.state, emptied.bytes_on_disk) == ("paused", 0)
    bench.store.close()
    assert not folder.exists() and len(bench.log) == 1


def test_a_folder_put_back_in_its_place_is_gone_on_with(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    bench = on_disk(folder)
    bench.store.open()
    bench.store.append(run(20))
    folder.rename(tmp_path / "aside")
    folder.mkdir()
    assert bench.store.append(run(30)).parts == () and os.listdir(folder) == []
    folder.rmdir()
    (tmp_path / "aside").rename(folder)
    assert bench.store.sync().state == "on"
    assert len(bench.store.append(run(40)).parts) == 1
    assert pieces(bench.store) == [run(20).tolist(), run(40).tolist()]


def test_chunk_files_removed_under_the_server_are_replaced_by_a_new_one() -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(150))
    for name in _chunk_names(bench):
        del _contents(bench)[name]
    (part,) = bench.store.append(run(30)).parts
    assert part.offset == 0 and bench.store.state().state == "on"
    assert _contents(bench)[f"{part.sequence:08d}.ids"] == chunk(run(30))


def test_a_chunk_that_vanished_before_it_was_durable_is_no_fault() -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(20))
    del _contents(bench)[_chunk_names(bench)[0]]
    bench.clock.advance(6)
    assert bench.store.sync().state == "on"
    assert len(bench.store.append(run(30)).parts) == 1 and bench.log == []


def test_chunks_that_vanish_at_once_pause() -> None:
    bench = in_memory()
    bench.store.open()

    def vanish(call: str, name: str) -> None:
        if call == "append":
            _contents(bench).pop(name)

    bench.files.before = vanish
    assert bench.store.append(run(30)).parts == ()
    assert bench.store.state().state == "paused" and "vanish" in bench.store.state().reason


def test_a_chunk_that_vanished_still_counts_as_the_oldest_when_room_is_made() -> None:
    bench = in_memory()
    bench.store.open()
    sequences = [bench.store.append(run(CHUNK, at)).parts[0].sequence for at in range(CHUNKS)]
    del _contents(bench)[f"{sequences[0]:08d}.ids"]
    assert bench.store.append(run(CHUNK)).evicted == (sequences[0],)


# Emptying


def test_emptying_leaves_identity_and_lock(tmp_path: Path) -> None:
    bench = on_disk(tmp_path)
    bench.store.open()
    bench.store.append(run(300))
    (tmp_path / "note.txt").write_bytes(b"mine")
    (tmp_path / "00000001.ids").write_bytes(b"odd")
    (tmp_path / "00000002.ids").mkdir()
    (tmp_path / "00000003.ids").symlink_to("note.txt")
    state = bench.store.delete_all()
    assert (state.state, state.bytes_on_disk) == ("on", 0)
    assert set(os.listdir(tmp_path)) == {"identity", "lock", "note.txt", "00000002.ids", "00000003.ids"}
    assert bench.store.delete_all() == state


def test_emptying_is_durable_before_it_is_said() -> None:
    bench = in_memory()
    bench.store.open()
    bench.store.append(run(300))
    _calls(bench)
    bench.store.delete_all()
    calls = [call for call, _ in _calls(bench)]
    assert calls[-1] == "sync_folder" and set(calls[:-1]) == {"remove"}


def test_nobody_but_the_writer_empties_a_record() -> None:
    bench = in_memory(record({1: chunk(run(20))}))
    reader = bench.another(read_only=True)
    assert reader.open().state == reader.delete_all().state == "read-only"
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles)
    files.folder.holder = "another server"
    assert bench.store.open().state == bench.store.delete_all().state == "second"
    assert pieces(bench.store) == pieces(reader) == [run(20).tolist()]
    assert _calls(bench) == []


# Bounds


@pytest.mark.parametrize(("budget", "chunk_ids"), [(4 * CHUNK, CHUNK), (0, CHUNK), (-1, CHUNK), (1 << 20, 64)])
def test_a_budget_of_less_than_two_chunks_is_not_taken(budget: int, chunk_ids: int) -> None:
    with pytest.raises(ValueError):
        in_memory().another(budget_bytes=budget, chunk_ids=chunk_ids)


def test_a_record_that_is_not_open_does_nothing() -> None:
    bench = in_memory(MemoryFolder())
    assert bench.store.state().state == "off"
    assert bench.store.append(run(20)).parts == () and bench.store.sync().state == "off"
    assert _calls(bench) == []
