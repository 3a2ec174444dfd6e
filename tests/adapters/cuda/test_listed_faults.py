"""Memory that runs out anywhere in a call: nothing leaks, no lane moves, and the call may be made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

import contextlib

from tensorfold.application.ports.target_model import LaneWindow, ProposeSpec, RoundBatch, Span, Ticket
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import Window, chain, tree
from tests.adapters.cuda.listed_faults import RunsOut
from tests.adapters.cuda.listed_model import Listed, expected, expected_drafts, ids, listed

GREEDY = Sampling()
CAPACITY = 80
with_and_without_graphs = pytest.mark.parametrize("graphs", [False, True], ids=["layer by layer", "graphs"])


@dataclass(slots=True)
class Scene:
    """Lanes in every state: kept whole, kept in part, behind a branch, empty, and kept beside the others."""

    listed: Listed
    histories: dict[int, list[int]] = field(default_factory=dict)
    lanes: list[int] = field(default_factory=list)
    fork: int = 0
    image: Any = None

    @property
    def model(self) -> Any:
        return self.listed.model

    def open(self, *prompt: int) -> int:
        lane: int = self.model.open(CAPACITY)
        self.lanes.append(lane)
        self.histories[lane] = list(prompt)
        if prompt:
            self.model.prefill(lane, ids(prompt), Span(0, len(prompt)))
        return lane

    def asked(self, lane: int, window: Window, audit: bool = False) -> LaneWindow:
        return LaneWindow(lane, len(self.histories[lane]), window, GREEDY, None, audit)

    def take(self, lane: int, window: Window, path: tuple[int, ...]) -> None:
        ticket = self.model.launch(RoundBatch((self.asked(lane, window),)))
        self.model.collect(ticket)
        self.model.keep(ticket, [path])
        self.histories[lane] += [window.tokens[row] for row in path]

    def plain(self, *lanes: int) -> RoundBatch:
        """The rows that streams ask for which take what they draw."""
        return RoundBatch(tuple(self.asked(lane, chain(self.next(lane))) for lane in lanes))

    def next(self, lane: int) -> int:
        return expected(self.histories[lane], GREEDY) if self.histories[lane] else 1

    def stands(self) -> None:
        """Every lane draws what its history says, and drafts from it or not at all."""
        for lane, history in self.histories.items():
            if self.model.parts.head is not None:
                spec = ProposeSpec(lane, 5, 2, GREEDY)
                assert self.model.propose([spec]) in ([None], [expected_drafts(history, spec)])
            ticket = self.model.launch(RoundBatch((self.asked(lane, chain(7, [8]), audit=True),)))
            (drawn,) = self.model.collect(ticket).tokens
            assert list(drawn) == [expected([*history, 7], GREEDY), expected([*history, 7, 8], GREEDY)]
            self.model.discard(ticket)

    def empty(self, free: tuple[int, int, int]) -> None:
        """Everything is closed and nothing is left."""
        for lane in self.model.lanes():
            self.model.close(lane)
        assert self.listed.held == free


def scene(graphs: bool) -> tuple[Scene, tuple[int, int, int]]:
    made = listed(graphs=graphs, head=True, streams=6)
    free, stage = made.held, Scene(made)
    whole, part = stage.open(3, 1, 4, 1, 5), stage.open(9, 2, 6)
    stage.open()
    stage.take(whole, chain(5, [3, 5]), (0, 1, 2))
    stage.take(part, chain(8, [9, 7, 9]), (0, 1))
    stage.fork = made.model.fork(whole)
    stage.histories[stage.fork] = list(stage.histories[whole])
    stage.image = made.model.export(whole)
    return stage, free


def branch(stage: Scene) -> Ticket:
    """A collected launch of three lanes, one of them a tree."""
    windows = (tree(1, [2, 3, 4], [0, 0, 2]), chain(2, [3]), chain(4))
    asked = zip(stage.lanes, windows, strict=True)
    ticket: Ticket = stage.model.launch(RoundBatch(tuple(stage.asked(lane, window) for lane, window in asked)))
    return ticket


OPERATIONS: dict[str, Callable[[Scene], Any]] = {
    "open": lambda stage: stage.model.open(CAPACITY),
    "fork": lambda stage: stage.model.fork(stage.lanes[1]),
    "resume": lambda stage: stage.model.resume(stage.fork, CAPACITY),
    "resume of a lane": lambda stage: stage.model.resume(stage.lanes[1], CAPACITY),
    "restore": lambda stage: stage.model.restore(stage.image, CAPACITY),
    "export": lambda stage: stage.model.export(stage.lanes[1]),
}
HISTORY_OF = {"fork": 1, "resume": 0, "resume of a lane": 1, "restore": 0}


def faults(graphs: bool = False, onwards: bool = False) -> Iterator[tuple[Scene, RunsOut]]:
    """A scene for each call that may fail, and what makes it fail, as long as there are more of them.

    Behind each of them every lane must draw what its history says, and nothing may be left once all are closed.
    """
    for nth in range(200):
        stage, free = scene(graphs)
        out = RunsOut(stage.listed, nth, onwards=onwards)
        yield stage, out
        stage.stands()
        stage.empty(free)
        if not out.hit:
            return
    raise AssertionError("a call of more than 200 operations")


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_call_that_finds_no_memory_takes_nothing_and_may_be_made_again(name: str) -> None:
    for stage, out in faults():
        before, lanes = stage.listed.held, stage.model.lanes()
        raised = False
        made: Any = None
        with out:
            try:
                made = OPERATIONS[name](stage)
            except MemoryError:
                raised = True
        if raised:
            assert stage.listed.held == before and stage.model.lanes() == lanes
            made = OPERATIONS[name](stage)
        if name != "export":
            stage.histories[made] = list(stage.histories[stage.lanes[HISTORY_OF[name]]]) if name in HISTORY_OF else []


@pytest.mark.slow
@with_and_without_graphs
def test_a_launch_that_finds_no_memory_leaves_every_lane_as_it_stood(graphs: bool) -> None:
    for stage, out in faults(graphs):
        ticket = None
        with out, contextlib.suppress(MemoryError):
            ticket = branch(stage)
        if ticket is None:
            stage.stands()
            ticket = branch(stage)
        drawn = stage.model.collect(ticket).tokens
        assert [tokens[0] for tokens in drawn] == [
            expected([*stage.histories[lane], first], GREEDY)
            for lane, first in zip(stage.lanes, (1, 2, 4), strict=True)
        ]
        stage.model.discard(ticket)


@pytest.mark.slow
@with_and_without_graphs
def test_a_launch_beside_another_that_finds_no_memory_leaves_both_as_they_stood(graphs: bool) -> None:
    for stage, out in faults(graphs):
        first = stage.model.launch(RoundBatch((stage.asked(stage.lanes[0], chain(1, [2])),)))
        batch = RoundBatch((stage.asked(stage.lanes[1], chain(3, [4])),))
        with out, contextlib.suppress(MemoryError):
            stage.model.discard(stage.model.launch(batch))
        drawn = stage.model.collect(first).tokens[0]
        history = stage.histories[stage.lanes[0]]
        assert list(drawn) == [expected([*history, 1], GREEDY), expected([*history, 1, 2], GREEDY)]
        stage.model.keep(first, [(0,)])
        history.append(1)


@pytest.mark.slow
def test_a_prompt_that_finds_no_memory_leaves_its_lane_as_it_stood() -> None:
    for stage, out in faults():
        lane = stage.lanes[1]
        text = [*stage.histories[lane], 4, 5, 6, 7]
        span = Span(len(text) - 4, len(text))
        with out:
            try:
                stage.model.prefill(lane, ids(text), span)
                stage.histories[lane] = text
            except MemoryError:
                pass
        stage.stands()
        if stage.histories[lane] is not text:
            stage.model.prefill(lane, ids(text), span)
            stage.histories[lane] = text


@pytest.mark.slow
def test_a_launch_of_a_kept_state_that_finds_no_memory_leaves_it_to_be_launched_again() -> None:
    for stage, out in faults():
        batch = RoundBatch((stage.asked(stage.fork, chain(3)),))
        with out, contextlib.suppress(MemoryError):
            stage.model.discard(stage.model.launch(batch))


@pytest.mark.slow
@pytest.mark.parametrize("onwards", [False, True], ids=["once", "from then on"])
@with_and_without_graphs
def test_memory_that_lacks_for_a_round_ahead_fails_no_round(graphs: bool, onwards: bool) -> None:
    for stage, out in faults(graphs, onwards):
        streams = stage.lanes[:2]
        for _ in range(2):
            step(stage, streams)
        batch = stage.plain(*streams)
        ticket = None
        with out, contextlib.suppress(MemoryError):
            ticket = stage.model.launch(batch)
        if ticket is None:
            ticket = stage.model.launch(batch)
        settle(stage, ticket, batch)
        for _ in range(2):
            step(stage, streams)


def step(stage: Scene, streams: list[int]) -> None:
    batch = stage.plain(*streams)
    settle(stage, stage.model.launch(batch), batch)


def settle(stage: Scene, ticket: Ticket, batch: RoundBatch) -> None:
    drawn = stage.model.collect(ticket).tokens
    stage.model.keep(ticket, [(0,) for _ in batch.windows])
    for asked, (token,) in zip(batch.windows, drawn, strict=True):
        stage.histories[asked.lane] += asked.window.tokens
        assert token == expected(stage.histories[asked.lane], GREEDY)


@pytest.mark.slow
def test_lanes_whose_rows_could_not_be_kept_are_closed_and_leave_nothing() -> None:
    for stage, out in faults():
        ticket = branch(stage)
        stage.model.collect(ticket)
        paths = ((0, 2, 3), (0,), (0,))
        with out:
            try:
                stage.model.keep(ticket, paths)
            except MemoryError:
                for lane in stage.lanes:
                    stage.model.close(lane)
                    del stage.histories[lane]
            else:
                stage.histories[stage.lanes[0]] += (1, 3, 4)
                stage.histories[stage.lanes[1]].append(2)
                stage.histories[stage.lanes[2]].append(4)


@pytest.mark.slow
def test_memory_that_lacks_for_what_a_head_reads_fails_no_rows_that_stay_where_they_lie() -> None:
    for stage, out in faults():
        ticket = branch(stage)
        stage.model.collect(ticket)
        with out:
            stage.model.keep(ticket, ((0,), (0, 1), (0,)))
        for lane, tokens in zip(stage.lanes, ((1,), (2, 3), (4,)), strict=True):
            stage.histories[lane] += tokens


@pytest.mark.parametrize("name", ["open", "fork", "resume", "prefill", "keep"])
def test_a_head_that_fails_costs_its_lane_the_drafts_and_nothing_else(name: str) -> None:
    stage, free = scene(graphs=False)
    lane = stage.lanes[0]
    with RunsOut(stage.listed, 0, onwards=True, heads_alone=True) as out:
        if name == "prefill":
            text = [*stage.histories[lane], 4, 5]
            stage.model.prefill(lane, ids(text), Span(len(text) - 2, len(text)))
            stage.histories[lane] = text
        elif name == "keep":
            stage.take(lane, chain(1, [2]), (0,))
        else:
            lane = OPERATIONS[name](stage)
            stage.histories[lane] = [] if name == "open" else list(stage.histories[stage.lanes[HISTORY_OF[name]]])
    assert out.hit
    assert stage.model.propose([ProposeSpec(lane, 5, 2, GREEDY)]) == [None]
    assert stage.model.propose([ProposeSpec(stage.lanes[1], 5, 2, GREEDY)]) != [None]
    stage.stands()
    stage.empty(free)


def test_draws_that_could_not_be_read_may_be_forgotten() -> None:
    stage, free = scene(graphs=False)
    ticket = stage.model.launch(RoundBatch((stage.asked(stage.lanes[0], chain(1), audit=True),)))
    with RunsOut(stage.listed, 0, onwards=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage.model._launches[ticket.id], "copied", _Broken())
        with pytest.raises(MemoryError):
            stage.model.collect(ticket)
    stage.model.discard(ticket)
    stage.stands()
    stage.empty(free)


@pytest.mark.parametrize("rest", [(), (("other.head", b"12345678"),), (("drafter.listed.hidden", b"1234"),)])
def test_an_image_without_the_heads_own_state_costs_the_drafts_or_is_refused(rest: Any) -> None:
    stage, free = scene(graphs=False)
    image = replace(stage.image, buffers=(*stage.image.buffers[:-1], *rest))
    if rest and rest[0][0].startswith("drafter."):
        with pytest.raises(ValueError, match="buffers"):
            stage.model.restore(image, CAPACITY)
    else:
        lane = stage.model.restore(image, CAPACITY)
        stage.histories[lane] = list(stage.histories[stage.lanes[0]])
        assert stage.model.propose([ProposeSpec(lane, 5, 2, GREEDY)]) == [None]
    stage.stands()
    stage.empty(free)


class _Broken:
    def synchronize(self) -> None:
        raise RuntimeError("CUDA error: out of memory")


def test_a_model_that_shut_down_holds_nothing_of_its_parts() -> None:
    stage, _ = scene(graphs=True)
    step(stage, stage.lanes[:2])
    stage.model.shutdown()
    stage.model.shutdown()
    parts = stage.model.parts
    held = [parts.assembly, parts.decoder, parts.head, parts.table]
    assert held == [None] * 4 and stage.model.lanes() == ()
