"""A folder is hostile input: whatever lies in it, the record opens, reads ids of the vocabulary, and leaves alone what
is not its own.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.recall.layout import CHUNK_IDS
from tests.adapters.filesystem.records import (
    CHUNK,
    CHUNKS,
    IDENTITY,
    VOCABULARY,
    Bench,
    chunk,
    in_memory,
    on_disk,
    pieces,
    record_of,
    run,
)
from tests.contracts.candidates import sentence
from tests.fakes.record_files import MemoryRecordFiles

FULL = chunk(run(CHUNK), end=False)


def _contents(bench: Bench) -> dict[str, bytes]:
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles) and files.folder.contents is not None
    return files.folder.contents


@settings(derandomize=True, deadline=None, max_examples=120)
@given(
    st.dictionaries(
        st.sampled_from([0, 1, 2, 7, 50_000_000, 99_999_998, 99_999_999]),
        st.binary(max_size=5 * CHUNK) | st.integers(0, 40).map(bytes) | st.just(FULL),
        max_size=5,
    ),
    st.booleans(),
)
@pytest.mark.slow
def test_any_files_open_and_read_as_ids_of_the_vocabulary(files: dict[int, bytes], read_only: bool) -> None:
    bench = in_memory(record_of(files))
    store = bench.another(read_only=read_only)
    assert store.open().state == ("read-only" if read_only else "on")
    chunks = list(store.chunks())
    assert [one.sequence for one in chunks] == sorted(one.sequence for one in chunks)
    assert len(chunks) <= CHUNKS
    for one in chunks:
        assert one.ids.dtype == np.int32 and 0 < len(one.ids) <= CHUNK
        assert all(-1 <= token < VOCABULARY for token in one.ids.tolist())
    before = pieces(store)
    added = store.append(run(40))
    if added.parts and not added.evicted:
        assert pieces(store) == [*before, run(40).tolist()]
    store.close()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.binary(min_size=1, max_size=1200))
def test_no_identity_but_a_sound_one_opens(data: bytes) -> None:
    bench = in_memory(record_of({}, identity=data))
    try:
        assert bench.store.open().state == "on"
    except RefusedError as refusal:
        sentence(refusal)
        assert _contents(bench)["identity"] == data


def test_foreign_names_links_folders_and_devices_are_ignored_and_never_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    folder.mkdir()
    (tmp_path / "outside").write_bytes(chunk(run(20)))
    (folder / "identity").write_bytes(IDENTITY.text().encode())
    (folder / "00000005.ids").write_bytes(chunk(run(20)))
    for name in ("1.ids", "000000006.ids", "00000006.txt", "00000006.ids~", "README", "0000000６.ids", ".hidden"):
        (folder / name).write_bytes(chunk(run(30)))
    (folder / "00000006.ids").symlink_to(tmp_path / "outside")
    (folder / "00000007.ids").mkdir()
    os.mkfifo(folder / "00000008.ids")
    before = set(os.listdir(folder))
    bench = on_disk(folder)
    bench.store.open()
    assert pieces(bench.store) == [run(20).tolist()]
    for at in range(8):
        bench.store.append(run(CHUNK, at))
    assert {part.sequence for part in bench.store.append(run(20)).parts} == {17}
    assert bench.store.delete_all().state == "on"
    assert set(os.listdir(folder)) == (before - {"00000005.ids"}) | {"lock"}
    assert (tmp_path / "outside").read_bytes() == chunk(run(20))


def test_a_new_chunk_goes_past_names_that_are_taken_by_something_else() -> None:
    folder = record_of({5: FULL})
    assert folder.contents is not None
    for number in (6, 7):
        folder.contents[f"{number:08d}.ids"] = b""
        folder.odd.add(f"{number:08d}.ids")
    bench = in_memory(folder)
    bench.store.open()
    assert [part.sequence for part in bench.store.append(run(20)).parts] == [8]


@pytest.mark.parametrize("name", ["identity", "lock"])
def test_a_link_in_place_of_a_known_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_bytes(b"precious")
    folder = tmp_path / "record"
    folder.mkdir()
    (folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(RefusedError) as refusal:
        on_disk(folder).store.open()
    sentence(refusal.value)
    assert "symbolic link" in refusal.value.message and (tmp_path / "outside").read_bytes() == b"precious"


def test_what_a_chunk_has_no_room_for_is_ignored_and_cut_off_by_the_writer() -> None:
    long = FULL + chunk(run(500))
    bench = in_memory(record_of({1: long, 2: chunk(run(20))}))
    reader = bench.another(read_only=True)
    reader.open()
    assert pieces(reader) == [run(CHUNK).tolist(), run(20).tolist()] and _contents(bench)["00000001.ids"] == long
    assert bench.store.open().bytes_on_disk == len(FULL) + len(chunk(run(20)))
    assert _contents(bench)["00000001.ids"] == FULL
    assert sum("00000001.ids" in line for line in bench.log) == 2


def test_an_endless_file_costs_no_more_than_a_chunk(tmp_path: Path) -> None:
    (tmp_path / "identity").write_bytes(IDENTITY.text().encode())
    with open(tmp_path / "00000001.ids", "wb") as file:
        file.truncate(1 << 40)
    bench = on_disk(tmp_path)
    reader = bench.another(read_only=True, budget_bytes=64 << 20, chunk_ids=CHUNK_IDS)
    reader.open()
    assert [len(one.ids) for one in reader.chunks()] == [CHUNK_IDS]
    bench.store.open()
    assert (tmp_path / "00000001.ids").stat().st_size == 4 * CHUNK


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 79, 80, 82])
def test_a_file_that_ends_within_an_id_is_read_up_to_it_and_cut_by_the_writer(size: int) -> None:
    bench = in_memory(record_of({1: chunk(run(30)), 2: chunk(run(20))[:size]}))
    reader = bench.another(read_only=True)
    reader.open()
    whole = [run(size // 4).tolist()] if size >= 4 else []
    assert pieces(reader) == [run(30).tolist(), *whole]
    assert len(_contents(bench)["00000002.ids"]) == size
    bench.store.open()
    assert len(_contents(bench)["00000002.ids"]) == size - size % 4
    bench.store.append(run(40))
    assert pieces(bench.store) == [run(30).tolist(), *whole, run(40).tolist()]


@pytest.mark.parametrize("short", [1, 2, 3])
def test_what_was_cut_off_a_chunk_without_room_is_not_counted(short: int) -> None:
    bench = in_memory(record_of({1: chunk(run(CHUNK), end=False)[:-short]}))
    bench.store.open()
    assert len(_contents(bench)["00000001.ids"]) == 4 * (CHUNK - 1)
    assert bench.store.state().bytes_on_disk == 4 * (CHUNK - 1)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_chunk_that_cannot_be_read_is_left_out_and_told_of(number: int) -> None:
    bench = in_memory(record_of({1: chunk(run(20)), 2: chunk(run(30)), 3: chunk(run(40))}))
    bench.fail("read", number=number, name="00000002")
    bench.store.open()
    assert pieces(bench.store) == [run(20).tolist(), run(40).tolist()]
    assert len(bench.log) == 1 and "00000002.ids" in bench.log[0]


def test_a_newest_chunk_that_cannot_be_read_is_not_added_to() -> None:
    bench = in_memory(record_of({1: chunk(run(20)), 2: chunk(run(30))}))
    bench.fail("read", number=errno.EIO, name="00000002")
    bench.store.open()
    assert [part.sequence for part in bench.store.append(run(40)).parts] == [3]
    assert _contents(bench)["00000002.ids"] == chunk(run(30))
    assert bench.store.delete_all().state == "on" and "00000002.ids" not in _contents(bench)


def test_a_chunk_that_vanishes_between_listing_and_reading_is_nothing_new() -> None:
    bench = in_memory(record_of({1: chunk(run(20)), 2: chunk(run(30))}))
    reader = bench.another(read_only=True)
    reader.open()

    def vanish(call: str, name: str) -> None:
        if call == "read":
            _contents(bench).pop("00000001.ids", None)

    bench.files.before = vanish
    assert pieces(reader) == [run(30).tolist()] and bench.log == []


def test_a_folder_that_cannot_be_listed_any_more_reads_as_empty() -> None:
    bench = in_memory(record_of({1: chunk(run(20))}))
    bench.store.open()
    bench.fail("entries", number=errno.EIO)
    assert pieces(bench.store) == [] and len(bench.log) == 1


def test_gaps_in_the_numbers_are_fine() -> None:
    bench = in_memory(record_of({3: chunk(run(20)), 70: chunk(run(30)), 4_000: chunk(run(40))}))
    bench.store.open()
    assert [one.sequence for one in bench.store.chunks()] == [3, 70, 4_000]
    assert [part.sequence for part in bench.store.append(run(150)).parts] == [4_000, 4_001]


def test_the_last_number_is_used_and_then_the_record_waits_to_be_emptied() -> None:
    bench = in_memory(record_of({99_999_999: chunk(run(20))}))
    bench.store.open()
    assert [part.sequence for part in bench.store.append(run(30)).parts] == [99_999_999]
    assert len(bench.store.append(run(200)).parts) == 1, "what fits is added"
    state = bench.store.state()
    assert state.state == "paused" and "numbers" in state.reason
    assert bench.store.append(run(30)).parts == () and len(bench.log) == 1
    assert bench.store.delete_all().state == "on"
    (part,) = bench.store.append(run(30)).parts
    assert part.sequence < 99_999_999 and bench.store.state().state == "on"


def test_a_folder_in_the_place_of_the_last_number_pauses_too() -> None:
    folder = record_of({99_999_998: FULL})
    assert folder.contents is not None
    folder.contents["99999999.ids"] = b""
    folder.odd.add("99999999.ids")
    bench = in_memory(folder)
    bench.store.open()
    assert bench.store.append(run(30)).parts == () and "numbers" in bench.store.state().reason


@pytest.mark.slow
def test_of_thousands_of_chunks_the_newest_are_read_and_the_writer_keeps_no_more(tmp_path: Path) -> None:
    (tmp_path / "identity").write_bytes(IDENTITY.text().encode())
    for number in range(3000):
        (tmp_path / f"{number:08d}.ids").write_bytes(chunk(run(17, number)))
    bench = on_disk(tmp_path)
    reader = bench.another(read_only=True)
    assert reader.open().bytes_on_disk == CHUNKS * 18 * 4
    assert [one.sequence for one in reader.chunks()] == [2997, 2998, 2999]
    assert len(os.listdir(tmp_path)) == 3001
    bench.store.open()
    assert [one.sequence for one in bench.store.chunks()] == [2997, 2998, 2999]
    assert len(os.listdir(tmp_path)) == CHUNKS + 2


def test_no_log_line_and_no_reason_carries_an_id() -> None:
    secret = run(60, 31_337)
    bench = in_memory(record_of({1: chunk(secret)[:-2], 2: FULL + chunk(secret), 3: chunk(secret)}))
    reasons = []
    for call in ("read", "append", "truncate", "sync", "sync_folder", "remove", "create", "entries"):
        bench.fail(call, number=errno.EIO)
        store = bench.another()
        try:
            store.open()
        except RefusedError as refusal:
            reasons.append(refusal.message)
        store.append(secret)
        reasons += [store.state().reason, store.delete_all().reason]
        bench.heal()
        store.close()
    said = "\n".join([*bench.log, *reasons])
    assert len(bench.log) > 5 and not any(str(token) in said for token in secret.tolist())


def test_a_folder_name_that_would_steer_a_terminal_is_shown_plainly(tmp_path: Path) -> None:
    (tmp_path / "identity").write_bytes(b"?")
    store = in_memory().another()
    store = type(store)(
        PosixRecordFiles(tmp_path),
        IDENTITY,
        budget_bytes=1 << 20,
        read_only=True,
        free_bytes=lambda: 0,
        clock=in_memory().clock,
        log=print,
        folder="a\n\x1b[2Jb",
        chunk_ids=CHUNK,
    )
    with pytest.raises(RefusedError) as refusal:
        store.open()
    assert "a??[2Jb" in refusal.value.message
    sentence(refusal.value)
