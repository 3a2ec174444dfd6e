"""The record as a service: what reaches it and when, how it is emptied, and that nobody ever waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.stores import Appended, RecallStore, StoredChunk, StoreState
from tensorfold.application.recall import MOST_RUNS, RecallConflictError, RecallDeleteError, RecallService
from tensorfold.application.replies import Landed
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_BYTES, CHUNK_IDS, LEAST_CHUNKS, Ids
from tests.application.house import MachineClock, law, read, request, serving
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase, serial_references
from tests.fakes.stores import FakeRecallStore, FakeRecordFolder

VOCABULARY = 64
IDENTITY = RecordIdentity("ab" * 32, VOCABULARY, "fake")
WAIT_S = 30.0


def service_over(
    store: RecallStore, log: Callable[[str], None] = lambda line: None, clock: Clock | None = None
) -> RecallService:
    service = RecallService(
        store,
        IDENTITY,
        directory="/somewhere",
        budget_bytes=LEAST_CHUNKS * CHUNK_BYTES,
        clock=clock or MachineClock(),
        log=log,
    )
    service.open()
    service.start()
    return service


def a_store(folder: FakeRecordFolder | None = None) -> FakeRecallStore:
    return FakeRecallStore(folder, chunk_ids=CHUNK_IDS)


@contextmanager
def recalling(store: RecallStore | None = None) -> Iterator[RecallService]:
    service = service_over(store if store is not None else a_store())
    assert service.wait_loaded(WAIT_S)
    try:
        yield service
    finally:
        service.close()


def add(service: RecallService, ids: Sequence[int]) -> None:
    service.record(ids, 0, service.began())
    assert service.settle(WAIT_S)


def text(start: int, count: int) -> list[int]:
    """Ids without a repeated run of 16."""
    state, ids = start * 7919 + 13, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((state >> 33) % VOCABULARY)
    return ids


class HeldStore(FakeRecallStore):
    """Whose appends wait until `go` is set; `waiting` tells that one does."""

    def __init__(self, folder: FakeRecordFolder | None = None) -> None:
        super().__init__(folder, chunk_ids=CHUNK_IDS)
        self.go = threading.Event()
        self.waiting = threading.Event()

    def append(self, ids: Ids) -> Appended:
        self.waiting.set()
        assert self.go.wait(WAIT_S)
        return super().append(ids)


class BrokenStore(FakeRecallStore):
    """Raises in the calls named."""

    def __init__(self, *broken: str) -> None:
        super().__init__(chunk_ids=CHUNK_IDS)
        self.broken = set(broken)

    def append(self, ids: Ids) -> Appended:
        self._break("append")
        return super().append(ids)

    def chunks(self) -> Iterator[StoredChunk]:
        self._break("chunks")
        return super().chunks()

    def delete_all(self) -> StoreState:
        self._break("delete_all")
        return super().delete_all()

    def close(self) -> None:
        self._break("close")
        super().close()

    def _break(self, name: str) -> None:
        if name in self.broken:
            raise OSError(f"{name} 12345")


def test_a_run_is_found_again_by_its_last_ids_and_kept_for_the_next_start() -> None:
    folder, run = FakeRecordFolder(), text(1, 300)
    with recalling(a_store(folder)) as service:
        add(service, run)
        report = service.report()
        assert (report.state, report.ids, report.added_ids, report.chunks) == ("on", 300, 300, 1)
        assert report.directory == "/somewhere" and report.tokenizer == "sha256:" + "ab" * 32
        assert report.disk_bytes >= 1200 and report.memory_bytes > CHUNK_BYTES and report.reason is None
    with recalling(a_store(folder)) as service:
        assert service.report().ids == 300 and service.report().added_ids == 0
        source = service.factory.open(run[:40])
        proposal = source.propose(run[:40], 7)
        assert proposal is not None and proposal.tokens == tuple(run[40:47])


def test_the_same_request_twice_adds_nothing_the_second_time() -> None:
    with recalling() as service:
        for length in (20, 300, 5000):
            run = text(length, length)
            add(service, run)
            added = service.report().added_ids
            add(service, run)
            assert service.report().added_ids == added
        assert service.report().held_ids == 20 + 300 + 5000


def test_a_resumed_request_adds_what_was_not_read_before_and_a_lead_in() -> None:
    with recalling() as service:
        run = text(3, 400)
        service.record(run, 300, service.began())
        assert service.settle(WAIT_S)
        assert service.report().ids == 400 - 300 + 64


def test_runs_too_short_to_be_copied_are_not_handed_over() -> None:
    with recalling() as service:
        add(service, text(4, 16))
        assert service.report().ids == 0
        add(service, text(4, 17))
        assert service.report().ids == 17


def test_ids_outside_the_vocabulary_cut_a_run() -> None:
    with recalling() as service:
        add(service, [*text(5, 40), VOCABULARY + 3, -7, *text(6, 40)])
        assert service.report().ids == 80
        source = service.factory.open(text(5, 40))
        assert source.propose(text(5, 40), 7) is None


def test_a_long_run_is_read_a_little_at_a_time_so_that_rounds_come_between() -> None:
    class Watched(list[int]):
        """A list that remembers how much of it was asked for at once."""

        def __getitem__(self, place: Any) -> Any:
            asked.append(len(found) if isinstance(found := super().__getitem__(place), list) else 1)
            return found

    asked: list[int] = []
    run = text(30, 50_000)
    run[20_001] = VOCABULARY
    with recalling() as service:
        add(service, Watched(run))
        assert service.report().ids == 49_999 and service.factory.open(run).propose(run[:19_990], 7) is not None
    assert sum(asked) == 50_000 and max(asked) <= 4096


def test_a_stream_that_began_before_the_record_was_emptied_adds_nothing_to_it() -> None:
    with recalling() as service:
        began = service.began()
        add(service, text(7, 100))
        report = service.delete()
        assert (report.state, report.ids, report.added_ids, report.held_ids) == ("on", 0, 0, 0)
        service.record(text(8, 100), 0, began)
        assert service.settle(WAIT_S) and service.report().ids == 0
        add(service, text(9, 100))
        assert service.report().ids == 100


def test_what_waits_to_be_added_is_discarded_when_the_record_is_emptied() -> None:
    store = HeldStore()
    with recalling(store) as service:
        for number in range(3):
            service.record(text(number, 50), 0, service.began())
        assert store.waiting.wait(WAIT_S)
        deleted: list[Any] = []
        deleting = threading.Thread(target=lambda: deleted.append(service.delete()))
        deleting.start()
        while service.began() == 0:
            time.sleep(0.001)
        store.go.set()
        deleting.join(WAIT_S)
        assert deleted[0].ids == 0 and deleted[0].disk_bytes == 0


def test_emptying_takes_copies_from_running_streams_and_zeroes_what_they_counted() -> None:
    with recalling() as service:
        run = text(10, 200)
        add(service, run)
        source = service.factory.open(run[:50])
        first = source.propose(run[:50], 7)
        assert first is not None
        source.observe("recall", len(first), len(first), run[:58])
        assert service.report().copies.landed_tokens == len(first)
        pending = source.propose(run[:58], 7)
        assert pending is not None
        assert service.delete().copies.landed_tokens == 0
        source.observe("recall", len(pending), len(pending), run[:66])
        assert service.report().copies.offers == 0
        assert source.propose(run[:66], 7) is None


def test_a_chunk_that_stays_makes_emptying_fail_until_a_later_one_succeeds() -> None:
    folder = FakeRecordFolder()
    with recalling(a_store(folder)) as service:
        add(service, text(11, 100))
        folder.stuck = set(folder.chunks)
        with pytest.raises(RecallDeleteError) as failure:
            service.delete()
        assert failure.value.message
        report = service.report()
        assert (report.state, report.ids) == ("delete-failed", 0) and report.reason
        add(service, text(12, 100))
        assert service.report().ids == 0
        folder.stuck = set()
        assert service.delete().state == "on"
        add(service, text(13, 100))
        assert service.report().ids == 100


def test_who_does_not_write_the_record_may_not_empty_it() -> None:
    folder = FakeRecordFolder()
    with recalling(a_store(folder)) as first:
        add(first, text(14, 100))
        with recalling(a_store(folder)) as second:
            assert second.report().state == "second" and second.report().ids == 100
            add(second, text(15, 100))
            assert second.report().ids == 100
            with pytest.raises(RecallConflictError, match="Another server"):
                second.delete()
        assert first.report().ids == 100


class TakenStore(FakeRecallStore):
    """Paused at its start; another server has taken the folder by the time it is to be emptied."""

    def open(self) -> StoreState:
        self._taken = False
        super().open()
        return self.state()

    def state(self) -> StoreState:
        return StoreState("second" if self._taken else "paused", 0, "taken" if self._taken else "no space")

    def delete_all(self) -> StoreState:
        self._taken = True
        return self.state()


def test_emptying_a_folder_that_another_server_took_meanwhile_is_refused() -> None:
    service = service_over(TakenStore())
    with pytest.raises(RecallConflictError, match="Another server"):
        service.delete()
    service.close()


def test_a_writer_that_falls_behind_drops_runs_and_counts_them() -> None:
    store = HeldStore()
    with recalling(store) as service:
        service.record(text(0, 50), 0, service.began())
        assert store.waiting.wait(WAIT_S)
        for number in range(1, MOST_RUNS + 3):
            service.record(text(number, 50), 0, service.began())
        assert service.report().dropped_ids == 2 * 50
        store.go.set()
        assert service.settle(WAIT_S)
        assert service.report().added_ids == (MOST_RUNS + 1) * 50


class LeapingClock(MachineClock):
    """On which a second passes whenever it is read."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 1.0
        return self._now


def test_what_was_added_becomes_durable_however_busy_the_writer_is() -> None:
    store, run = HeldStore(), text(0, 50)
    service = service_over(store, clock=LeapingClock())
    service.record(run, 0, service.began())
    assert store.waiting.wait(WAIT_S)
    for _ in range(20):
        service.record(run, 0, service.began())
    settled = threading.Thread(target=service.settle, args=(WAIT_S,))
    settled.start()
    store.go.set()
    settled.join(WAIT_S)
    # The writer was never idle: what it was handed was held already, so that no piece came to bring the others along.
    assert service.report().held_ids == 20 * 50 and store.synced >= 20
    service.close()


@pytest.mark.slow
def test_nobody_waits_for_a_writer_that_is_stuck() -> None:
    store = HeldStore()
    service = service_over(store)
    service.record(text(0, 50), 0, service.began())
    assert store.waiting.wait(WAIT_S)
    assert service.report().state == "on" and service.began() == 0
    assert not service.settle(0.01)
    service.close(0.05)
    store.go.set()


@pytest.mark.parametrize("call", ["append", "chunks", "delete_all", "close"])
def test_a_store_that_fails_costs_its_own_part_only_and_its_words_are_not_logged(call: str) -> None:
    lines: list[str] = []
    store = BrokenStore(call)
    service = service_over(store, lines.append)
    assert service.wait_loaded(WAIT_S)
    service.record(text(16, 50), 0, service.began())
    assert service.settle(WAIT_S)
    if call == "delete_all":
        with pytest.raises(RecallDeleteError, match="log says why"):
            service.delete()
    else:
        service.delete()
    store.broken.discard("append")
    add(service, text(17, 50))
    assert service.report().ids == 50
    service.close()
    assert lines and not any("12345" in line for line in lines)


def test_closing_writes_what_waits_and_later_calls_are_harmless() -> None:
    folder = FakeRecordFolder()
    service = service_over(a_store(folder))
    for number in range(20):
        service.record(text(number, 50), 0, service.began())
    service.close()
    service.close()
    service.record(text(30, 50), 0, service.began())
    assert service.settle(1.0)
    with pytest.raises(RecallDeleteError, match="ending"):
        service.delete()
    assert folder.writer is None
    with recalling(a_store(folder)) as again:
        assert again.report().ids == 20 * 50


def test_a_service_that_was_never_started_gives_its_lock_back() -> None:
    folder = FakeRecordFolder()
    service = RecallService(
        a_store(folder),
        IDENTITY,
        directory="",
        budget_bytes=LEAST_CHUNKS * CHUNK_BYTES,
        clock=MachineClock(),
        log=lambda line: None,
    )
    service.open()
    service.close()
    assert folder.writer is None


class SlowStore(FakeRecallStore):
    """Whose last chunk, an empty one, comes when `go` is set; `reached` tells that the others were taken."""

    def __init__(self, folder: FakeRecordFolder) -> None:
        super().__init__(folder, chunk_ids=CHUNK_IDS)
        self.go = threading.Event()
        self.reached = threading.Event()

    def chunks(self) -> Iterator[StoredChunk]:
        yield from super().chunks()
        self.reached.set()
        assert self.go.wait(WAIT_S)


def filled() -> FakeRecordFolder:
    folder = FakeRecordFolder()
    with recalling(a_store(folder)) as service:
        add(service, text(18, 200))
    return folder


def test_nothing_is_offered_while_the_record_loads() -> None:
    store = SlowStore(filled())
    service = service_over(store)
    assert store.reached.wait(WAIT_S) and service.report().ids > 0
    assert service.report().state == "loading" and not service.wait_loaded(0.0)
    assert service.factory.open(text(18, 50)).propose(text(18, 50), 7) is None
    store.go.set()
    assert service.wait_loaded(WAIT_S)
    assert service.factory.open(text(18, 50)).propose(text(18, 50), 7) is not None
    service.close()


def test_a_record_emptied_while_it_loads_is_empty_when_it_is_loaded() -> None:
    store = SlowStore(filled())
    service = service_over(store)
    deleted: list[Any] = []
    deleting = threading.Thread(target=lambda: deleted.append(service.delete()))
    deleting.start()
    while service.began() == 0:
        time.sleep(0.001)
    store.go.set()
    deleting.join(WAIT_S)
    assert deleted[0].state == "on" and deleted[0].ids == 0
    service.close()


# -- through the scheduler ---------------------------------------------------------------------------------------


def test_a_repeated_request_copies_its_earlier_reply_and_stays_the_same() -> None:
    the_law = law(61)
    case = SerialCase(tuple(text(20, 20)), 120)
    (expected,) = serial_references(the_law, [case])
    with (
        recalling() as service,
        serving(HashModel(the_law), sources=(CopySourceFactory(), service.factory), recorder=service) as scheduler,
    ):
        first = read(scheduler.submit(request(case)))
        assert service.settle(WAIT_S)
        assert service.report().added_ids == 20 + len(expected.tokens)
        second = read(scheduler.submit(request(case)))
        assert service.settle(WAIT_S)
        assert tuple(first.ids) == tuple(second.ids) == expected.tokens
        report = service.report()
        assert report.copies.landed_tokens > 60 and report.added_ids == 20 + len(expected.tokens)


def test_a_request_that_asks_for_no_drafts_is_recorded_and_offered_nothing() -> None:
    the_law = law(62)
    case = SerialCase(tuple(text(21, 20)), 60)
    with (
        recalling() as service,
        serving(HashModel(the_law), sources=(service.factory,), recorder=service) as scheduler,
    ):
        for _ in range(2):
            read(scheduler.submit(request(case, draft=False)))
            assert service.settle(WAIT_S)
        assert service.report().added_ids > 60 and service.report().copies.offers == 0


def test_a_cancelled_reply_is_recorded_as_far_as_it_went_and_one_that_never_began_is_not() -> None:
    the_law = law(63)
    with (
        recalling() as service,
        serving(HashModel(the_law), recorder=service) as scheduler,
    ):
        running = scheduler.submit(request(SerialCase(tuple(text(22, 20)), 4000)))
        while (event := running.next(WAIT_S)) is not None and not hasattr(event, "ids"):
            pass
        running.cancel()
        read(running)
        assert service.settle(WAIT_S)
        added = service.report().added_ids
        assert added > 20
        waiting = scheduler.submit(request(SerialCase(tuple(text(23, 20)), 50)))
        waiting.cancel()
        read(waiting)
        assert service.settle(WAIT_S)
        assert service.report().added_ids in (added, added + 70)


def test_a_request_that_waited_for_a_lane_while_the_record_was_emptied_adds_nothing_to_it() -> None:
    the_law = law(65)
    with (
        recalling() as service,
        serving(HashModel(the_law), settings=EngineSettings(parallel=1), recorder=service) as scheduler,
    ):
        running = scheduler.submit(request(SerialCase(tuple(text(25, 20)), 4000)))
        assert isinstance(running.next(WAIT_S), Landed)
        waiting = scheduler.submit(request(SerialCase(tuple(text(26, 20)), 40)))
        assert scheduler.loads()[2] == 1
        service.delete()
        running.cancel()
        read(running)
        assert read(waiting).ended
        assert service.settle(WAIT_S) and service.report().ids == 0
        assert read(scheduler.submit(request(SerialCase(tuple(text(27, 20)), 40)))).ended
        assert service.settle(WAIT_S) and service.report().ids == 60


def test_a_recorder_that_fails_ends_no_request() -> None:
    class Broken:
        def began(self) -> int:
            raise RuntimeError("began")

        def record(self, tokens: Sequence[int], resumed: int, began: int) -> None:
            raise RuntimeError("record")

    lines: list[str] = []
    case = SerialCase(tuple(text(24, 20)), 30)
    with serving(HashModel(law(64)), recorder=Broken(), log=lines.append) as scheduler:
        assert read(scheduler.submit(request(case))).ended
        assert read(scheduler.submit(request(case))).ended
    assert any("not recorded" in line for line in lines)
