"""The writer's process ends anywhere: inside a write at every byte, before and after every call on the folder. What is
there opens again, within its budget, and no id is another than it was.
"""

from __future__ import annotations

import itertools

import pytest

from tests.adapters.filesystem.records import CHUNK, CHUNKS, Bench, chunk, in_memory, pieces, record_of, run
from tests.fakes.record_files import MemoryFolder, MemoryRecordFiles


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


def _left(bench: Bench) -> MemoryFolder:
    """The folder as another process finds it."""
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles)
    contents = None if files.folder.contents is None else dict(files.folder.contents)
    return MemoryFolder(contents)


@pytest.mark.parametrize("end", [True, False])
def test_a_write_cut_at_any_byte_loses_its_tail_alone(end: bool) -> None:
    before = chunk(run(20), run(30), end=end)
    after = chunk(run(20), run(30), run(25, 7000))
    for size in range(len(before), len(after) + 1):
        bench = in_memory(record_of({1: after[:size]}))
        assert bench.store.open().state == "on"
        cut = run(25, 7000)[: max(0, size - len(chunk(run(20), run(30)))) // 4].tolist()
        expected = [run(20).tolist(), run(30).tolist(), *([cut] if cut else [])]
        assert pieces(bench.store) == expected
        bench.store.append(run(17, 9000))
        assert pieces(bench.store) == [*expected, run(17, 9000).tolist()]


def _scenario(bench: Bench, told: list[list[int]], evicted: list[int]) -> None:
    """Fill the record past its budget, let ids become durable, empty it, go on."""
    bench.store.open()
    for at, count in enumerate((20, 200, 100, 150, CHUNK, 17, 300)):
        if at == 4:
            bench.clock.advance(10)
            bench.store.sync()
        if at == 6:
            bench.store.delete_all()
            told.clear()
        added = bench.store.append(run(count, 1000 * at))
        evicted += added.evicted
        told += [part.ids.tolist() for part in added.parts]
    bench.store.close()


def _calls_of_the_scenario() -> int:
    bench = in_memory()
    calls: list[str] = []
    bench.files.before = lambda call, name: calls.append(call)
    _scenario(bench, [], [])
    return len(calls)


@pytest.mark.parametrize("at", range(_calls_of_the_scenario()))
def test_a_process_killed_before_any_call_leaves_a_record_that_opens(at: int) -> None:
    bench, counter = in_memory(), itertools.count()
    told: list[list[int]] = []

    def kill(call: str, name: str) -> None:
        if next(counter) == at:
            raise Killed

    bench.files.before = kill
    with pytest.raises(Killed):
        _scenario(bench, told, [])
    everything = [run(count, 1000 * at).tolist() for at, count in enumerate((20, 200, 100, 150, CHUNK, 17, 300))]
    later = in_memory(_left(bench))
    reader = later.another(read_only=True)
    reader.open()
    assert len(list(reader.chunks())) <= CHUNKS
    seen = pieces(reader)
    assert later.store.open().state == "on"
    assert later.store.state().bytes_on_disk <= 4 * CHUNK * CHUNKS
    assert pieces(later.store) == seen
    for piece in seen:
        assert any(_within(piece, whole) for whole in everything), "an id is another than it was"
    # Emptying may have removed the oldest of what was told, and one more piece may have been written than was told.
    lost = [piece for piece in told if piece not in seen]
    assert lost == told[: len(lost)]
    later.store.append(run(200, 40_000))
    assert pieces(later.store)[-1][-1] == run(200, 40_000)[-1]
    assert later.store.state().bytes_on_disk <= 4 * CHUNK * CHUNKS


def _within(piece: list[int], whole: list[int]) -> bool:
    return any(whole[at : at + len(piece)] == piece for at in range(len(whole) - len(piece) + 1))


@pytest.mark.parametrize("sector", [512, 128, 4])
@pytest.mark.parametrize("tail", [False, True])
def test_zeros_where_sectors_were_lost_cost_ids_and_make_none(sector: int, tail: bool) -> None:
    whole = [run(40, 1000), run(50, 0), run(30, 5000)]
    data = chunk(*whole)
    for start in range(0, len(data), sector):
        end = len(data) if tail else start + sector
        damaged = (data[:start] + bytes(len(data) - start) + data[end:])[: len(data)] if tail else bytearray(data)
        if not tail:
            damaged = bytearray(data)
            damaged[start:end] = bytes(len(data[start:end]))
        bench = in_memory(record_of({1: bytes(damaged)}))
        bench.store.open()
        found = pieces(bench.store)
        assert all(any(_within(piece, text.tolist()) for text in whole) for piece in found)
        bench.store.append(run(17, 9000))
        assert pieces(bench.store) == [*found, run(17, 9000).tolist()]
