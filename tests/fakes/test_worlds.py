"""Fakes of the machine, stores and services fail in the ways that tests ask of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.ports.services import Release
from tests.fakes.backend import FakeBackend
from tests.fakes.checkpoints import FakeModelHub, FakeWeightPackage
from tests.fakes.clock import FakeClock
from tests.fakes.hash_model import HashModel
from tests.fakes.machine import FakeDisk, FakeMemory
from tests.fakes.misuse import MisuseError
from tests.fakes.ranks import FakeRankLink, FakeWire, rank_pair
from tests.fakes.services import FakeReleaseFeed, FakeReportWriter
from tests.fakes.stores import FakeRecallStore, FakeSnapshotStore


def test_a_clock_moves_only_when_told_and_never_back() -> None:
    clock = FakeClock(monotonic=5.0, wall=100.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.wall(), clock.slept) == (7.5, 102.5, 2.5)
    clock.set_wall(3.0)
    assert (clock.monotonic(), clock.wall()) == (7.5, 3.0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1.0)


def test_the_deepest_folder_decides_how_much_is_free() -> None:
    disk = FakeDisk(free=100)
    disk.folders = {Path("/a"): 10, Path("/a/b"): 1}
    paths = ("/c", "/a/x", "/a", "/a/b/c")
    assert [disk.free_bytes(Path(p)) for p in paths] == [100, 10, 10, 1]


def test_memory_reuses_freed_bytes_and_keeps_its_limit() -> None:
    memory = FakeMemory()
    memory.allocate(100)
    memory.free(60)
    assert (memory.active(), memory.cached(), memory.peak()) == (40, 60, 100)
    memory.allocate(50)
    assert (memory.active(), memory.cached(), memory.peak()) == (90, 10, 100)
    assert memory.limit(95)
    with pytest.raises(MemoryError):
        memory.allocate(6)
    memory.allocate(5)
    assert (memory.active(), memory.cached()) == (95, 0)
    memory.release()
    assert memory.releases == 1
    with pytest.raises(ValueError, match="in use"):
        memory.free(96)


def test_memory_that_binds_nothing_tells_nothing() -> None:
    memory = FakeMemory(binds=False)
    memory.allocate(10)
    assert (memory.active(), memory.cached(), memory.peak(), memory.limit(1)) == (None, None, None, False)
    memory.allocate(10)


def test_a_record_that_is_not_open_takes_nothing() -> None:
    store = FakeRecallStore()
    assert store.state().state == "off"
    with pytest.raises(MisuseError):
        store.append(np.arange(20, dtype=np.int32))


def test_a_fake_record_fills_its_chunks() -> None:
    store = FakeRecallStore(chunk_ids=100, most_chunks=2)
    store.open()
    added = [store.append(np.arange(count, dtype=np.int32)) for count in (20, 90, 20, 150)]
    assert [[len(part.ids) for part in one.parts] for one in added] == [[20], [79, 75], [20], [100, 78]]
    assert [len(chunk.ids) for chunk in store.chunks()] == [100, 79]
    assert [one.evicted for one in added] == [(), (), (), (1, 2, 3)]
    assert store.sync().state == "on" and store.synced == 1


def test_only_an_image_that_is_kept_can_be_spoilt() -> None:
    with pytest.raises(KeyError):
        FakeSnapshotStore().spoil("a")


def test_both_ends_of_a_closed_link_are_closed() -> None:
    zero, one = rank_pair()
    one.close()
    for link in (zero, one):
        with pytest.raises(ConnectionError):
            link.send(b"x")
        with pytest.raises(ConnectionError):
            link.receive()


def test_a_silent_peer_is_not_waited_for_for_ever() -> None:
    link = FakeRankLink(0, FakeWire(), FakeWire(), patience=0.01)
    with pytest.raises(ConnectionError):
        link.receive()


def test_feeds_and_writers_remember_what_they_were_asked(tmp_path: Path) -> None:
    feed, writer = FakeReleaseFeed(Release("v1.0.0", "notes")), FakeReportWriter()
    feed.latest(2.0)
    writer.write(tmp_path / "deep" / "report.svg", "Title", {"a": 1})
    assert feed.asked == [2.0] and writer.written == {tmp_path / "deep" / "report.svg": ("Title", {"a": 1})}


def test_a_hub_knows_revisions_and_counts_downloads(tmp_path: Path) -> None:
    hub, lines = FakeModelHub({"a/b": tmp_path, "a/b@v2": tmp_path / "2"}), list[str]()
    assert hub.fetch("a/b", "v2", lines.append) == hub.fetch("a/b", "v2", lines.append) == tmp_path / "2"
    assert hub.fetched == [("a/b", "v2")] and len(lines) == 1
    assert hub.cached("a/b", None) is None


def test_a_package_converts_each_name_once(tmp_path: Path) -> None:
    package, lines = FakeWeightPackage({"demo": tmp_path}), list[str]()
    package.provide("demo", lines.append)
    package.provide("demo", lines.append)
    assert package.converted == ["demo"] and len(lines) == 1


def test_a_backend_builds_what_it_was_given_or_says_what_is_missing() -> None:
    lines = list[str]()
    facts = CheckpointFacts(Path("m"), {}, {}, {}, 0, "d")
    backend = FakeBackend(lambda context, streams: HashModel(context=context, max_streams=streams))
    checkpoint = ModelCheckpoint(cast(Any, None), {}, facts)

    def load(backend: FakeBackend) -> Any:
        return backend.load(checkpoint, name="m", context=99, max_streams=3, on_progress=lines.append)

    limits = load(backend).limits
    assert (limits.context, limits.max_streams) == (99, 3)
    assert (backend.name, backend.missing(), backend.loaded, lines) == ("mlx", None, ["m"], ["loading m"])
    absent = FakeBackend(lambda context, streams: HashModel(), absent="Install it.")
    assert absent.missing() == "Install it."
    with pytest.raises(RefusedError, match="Install it"):
        load(absent)
