"""Drafts queued behind a launch's draws: used where the host asks for them, of no effect anywhere else."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from tensorfold.adapters.cuda import timings
from tensorfold.adapters.cuda.drafts_ahead import MOST_FAULTS
from tensorfold.application.ports.target_model import Chain, LaneWindow, ProposeSpec, RoundBatch, Span
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import Window, chain, tree
from tests.adapters.cuda.listed_faults import RunsOut
from tests.adapters.cuda.listed_model import Listed, ListedPaths, expected, expected_drafts, ids, listed

GREEDY, SAMPLED = Sampling(), Sampling(seed=7, temperature=1.0)
CAPACITY, DEPTH = 300, 2


@dataclass(slots=True)
class Drafted:
    """A stream that drafts round after round, every answer of its head compared with what its history says."""

    listed: Listed
    history: list[int]
    pending: int
    sampling: Sampling = GREEDY
    lane: int = 0
    answers: list[Any] = field(default_factory=list)

    def open(self) -> Drafted:
        self.lane = self.model.open(CAPACITY)
        self.model.prefill(self.lane, ids(self.history), Span(0, len(self.history)))
        return self

    @property
    def model(self) -> Any:
        return self.listed.model

    @property
    def counts(self) -> tuple[int, int, int]:
        ahead = self.model.drafts_ahead
        return ahead.queued, ahead.used, ahead.missed

    def spec(self, depth: int = DEPTH) -> ProposeSpec:
        return ProposeSpec(self.lane, self.pending, depth, self.sampling)

    def ask(self, depth: int = DEPTH) -> Chain:
        (answer,) = self.model.propose([self.spec(depth)])
        assert answer == expected_drafts(self.history, self.spec(depth))
        assert isinstance(answer, Chain)
        return answer

    def right(self, count: int) -> list[int]:
        """What the stream takes behind its pending token."""
        text = [*self.history, self.pending]
        for _ in range(count):
            text.append(expected(text, self.sampling))
        return text[-count:] if count else []

    def window(self, right: int = 1) -> Window:
        """So many drafts that land, and one that does not."""
        drafts = self.right(right + 1)
        return chain(self.pending, [*drafts[:-1], (drafts[-1] + 1) % 96])

    def asked(self, window: Window, **more: Any) -> LaneWindow:
        return LaneWindow(self.lane, len(self.history), window, self.sampling, **more)

    def settle(self, ticket: Any, window: Window, drawn: Any, room: int = 99, pending: int | None = None) -> None:
        accepted = accept(window, drawn, room, frozenset())
        self.model.keep(ticket, [accepted.path])
        self.history += [window.tokens[row] for row in accepted.path]
        self.pending = accepted.tokens[-1] if pending is None else pending

    def round(self, window: Window | None = None, *, room: int = 99, pending: int | None = None, **more: Any) -> None:
        window = self.window() if window is None else window
        ticket = self.model.launch(RoundBatch((self.asked(window, **more),)))
        (drawn,) = self.model.collect(ticket).tokens
        self.settle(ticket, window, drawn, room, pending)

    def habit(self) -> Drafted:
        """Rounds until drafts are queued; those behind the last of them are."""
        for _ in range(2):
            self.ask()
            self.round()
        assert self.counts == (1, 0, 0)
        return self


@pytest.fixture(params=[False, True], ids=["layer by layer", "graphs"])
def stream(request: Any) -> Drafted:
    return Drafted(listed(graphs=request.param, head=True), [3, 1, 4, 1, 5], 9).open()


def test_drafts_of_a_stream_that_goes_on_drafting_are_queued_and_used(stream: Drafted) -> None:
    for number in range(6):
        stream.ask()
        stream.round(stream.window(number % 3))
    stream.ask()
    assert stream.counts == (5, 5, 0)


def test_asked_twice_a_head_answers_twice_the_same(stream: Drafted) -> None:
    stream.habit()
    assert stream.ask() == stream.ask()
    assert stream.ask(1).tokens == stream.ask().tokens[:1]
    assert stream.counts == (1, 1, 0)


def test_a_sampled_tree_is_followed_too(stream: Drafted) -> None:
    stream.sampling = SAMPLED
    for _ in range(3):
        stream.ask()
        first, second = stream.right(2)
        stream.round(tree(stream.pending, [(first + 1) % 96, first, 7, second], [0, 0, 1, 2]))
    stream.ask()
    assert stream.counts == (2, 2, 0)


def _cut(stream: Drafted) -> None:
    stream.round(room=1)


def _another_token(stream: Drafted) -> None:
    stream.round(pending=(stream.right(2)[-1] + 5) % 96)


def _other_settings(stream: Drafted) -> None:
    stream.round()
    stream.sampling = SAMPLED


def _none_kept(stream: Drafted) -> None:
    window = stream.window()
    ticket = stream.model.launch(RoundBatch((stream.asked(window),)))
    stream.model.collect(ticket)
    stream.model.keep(ticket, [()])


def _forgotten(stream: Drafted) -> None:
    ticket = stream.model.launch(RoundBatch((stream.asked(stream.window()),)))
    stream.model.discard(ticket)


@pytest.mark.parametrize("happens", [_cut, _another_token, _other_settings, _none_kept, _forgotten])
def test_what_the_host_does_otherwise_is_drafted_anew(stream: Drafted, happens: Callable[[Drafted], None]) -> None:
    stream.habit().ask()
    happens(stream)
    stream.ask()
    assert stream.counts == (2, 1, 1)
    stream.round()
    stream.ask()
    assert stream.counts == (3, 2, 1)


def test_more_drafts_than_were_queued_are_made_anew(stream: Drafted) -> None:
    stream.habit().ask(3)
    assert stream.counts == (1, 0, 1)


def test_what_the_device_finds_wrong_costs_time_alone(stream: Drafted, monkeypatch: Any) -> None:
    monkeypatch.setattr(ListedPaths, "wrong", True)
    for _ in range(4):
        stream.ask()
        stream.round()
    stream.ask()
    assert stream.counts == (3, 0, 3)


def test_behind_rounds_with_masks_nothing_is_queued(stream: Drafted) -> None:
    stream.habit().ask()
    stream.round(chain(stream.pending, [1]), masks=(None, None))
    stream.ask()
    assert stream.counts == (1, 1, 0)


def test_rows_are_audited_as_where_nothing_is_queued(stream: Drafted) -> None:
    other = Drafted(listed(head=True, looks_ahead=False), [3, 1, 4, 1, 5], 9).open()
    for _ in range(4):
        prints = []
        for each in (stream, other):
            each.ask()
            window = each.window()
            ticket = each.model.launch(RoundBatch((each.asked(window, audit=True),)))
            draws = each.model.collect(ticket)
            each.settle(ticket, window, draws.tokens[0])
            prints.append(draws.prints)
        assert prints[0] == prints[1] and prints[0][0]
    assert stream.counts == (3, 2, 0)


def test_a_round_without_drafts_before_it_breaks_the_habit(stream: Drafted) -> None:
    stream.habit().ask()
    stream.round()
    stream.round()
    stream.ask()
    assert stream.counts == (2, 1, 0)
    stream.round()
    stream.ask()
    assert stream.counts == (2, 1, 0)


def _fork(stream: Drafted) -> int:
    lane: int = stream.model.fork(stream.lane)
    return lane


def _resume(stream: Drafted) -> int:
    lane: int = stream.model.resume(stream.lane, CAPACITY)
    return lane


def _restore(stream: Drafted) -> int:
    lane: int = stream.model.restore(stream.model.export(stream.lane), CAPACITY)
    return lane


@pytest.mark.parametrize("copied", [_fork, _resume, _restore])
@pytest.mark.parametrize("asked", [False, True], ids=["before it is asked", "after it was asked"])
def test_a_copy_of_a_lane_drafts_from_what_was_kept(
    stream: Drafted, copied: Callable[[Drafted], int], asked: bool
) -> None:
    stream.habit()
    if asked:
        stream.ask()
    twin = replace(stream, lane=copied(stream), history=list(stream.history))
    twin.pending = 11
    twin.ask()
    stream.ask()
    assert stream.counts == (1, 1, 0)
    for each in (twin, stream, twin, stream):
        each.round()
        each.ask()


def test_a_further_span_of_a_prompt_is_drafted_behind(stream: Drafted) -> None:
    stream.habit()
    text = [*stream.history, stream.pending, 8, 8]
    stream.model.prefill(stream.lane, ids(text), Span(len(stream.history), len(text)))
    stream.history = text
    stream.ask()
    assert stream.counts == (1, 0, 0)


def test_streams_of_one_round_are_used_or_missed_each_by_itself(stream: Drafted) -> None:
    other = Drafted(stream.listed, [2, 7, 1], 8, SAMPLED).open()
    third = Drafted(stream.listed, [6, 6], 1).open()
    streams = (stream, other, third)
    for number in range(4):
        specs = [each.spec() for each in streams[:2]]
        answers = stream.model.propose(specs)
        assert answers == [expected_drafts(e.history, s) for e, s in zip(streams, specs, strict=False)]
        windows = [each.window(at) for at, each in enumerate(streams)]
        batch = RoundBatch(tuple(each.asked(w) for each, w in zip(streams, windows, strict=True)))
        ticket = stream.model.launch(batch)
        drawn = stream.model.collect(ticket).tokens
        paths = [
            accept(w, tokens, 1 if number == 2 and at == 1 else 99, frozenset()).path
            for at, (w, tokens) in enumerate(zip(windows, drawn, strict=True))
        ]
        stream.model.keep(ticket, paths)
        for each, window, path, tokens in zip(streams, windows, paths, drawn, strict=True):
            each.history += [window.tokens[row] for row in path]
            each.pending = tokens[path[-1]]
    for each in streams:
        each.ask()
    assert stream.counts == (6, 5, 1)


def test_a_lane_that_closes_under_its_drafts_leaves_the_others_theirs(stream: Drafted) -> None:
    free = stream.listed.held
    other = Drafted(stream.listed, [2, 7, 1], 8).open()
    for each in (stream, other):
        each.ask()
        each.round()
        each.ask()
    window, others = stream.window(), other.window()
    ticket = stream.model.launch(RoundBatch((stream.asked(window), other.asked(others))))
    stream.model.close(other.lane)
    drawn = stream.model.collect(ticket).tokens
    accepted = accept(window, drawn[0], 99, frozenset())
    stream.model.keep(ticket, [accepted.path, ()])
    stream.history += [window.tokens[row] for row in accepted.path]
    stream.pending = accepted.tokens[-1]
    stream.ask()
    assert stream.counts == (2, 1, 0) and stream.listed.held == free


def test_a_head_that_cannot_queue_costs_no_round_and_no_drafts(stream: Drafted) -> None:
    stream.habit().ask()
    window = stream.window()
    with RunsOut(stream.listed, 0, onwards=True, heads_alone=True) as out:
        ticket = stream.model.launch(RoundBatch((stream.asked(window),)))
    assert out.hit
    (drawn,) = stream.model.collect(ticket).tokens
    stream.settle(ticket, window, drawn)
    stream.ask()
    assert stream.counts == (1, 1, 0)


def test_drafts_that_can_never_be_queued_are_not_tried_for_ever(stream: Drafted) -> None:
    tried: list[int] = []

    def broken(behind: Any, found: Any) -> Any:
        tried.append(len(behind))
        raise RuntimeError("no such kernel")

    stream.listed.head.queue = broken  # type: ignore[method-assign, union-attr]
    for _ in range(8):
        stream.ask()
        stream.round()
    stream.ask()
    assert len(tried) == MOST_FAULTS and stream.counts == (0, 0, 0)


def test_a_load_times_the_head_as_streams_have_it() -> None:
    made = listed(graphs=True, head=True)
    timings.measure(made.model)
    assert made.model.drafts_ahead.used >= timings.TURNS


def test_a_model_that_shut_down_holds_no_head(stream: Drafted) -> None:
    stream.habit()
    head = weakref.ref(stream.listed.head)
    model, stream.listed = stream.model, None  # type: ignore[assignment]
    model.shutdown()
    gc.collect()
    assert head() is None


def test_a_model_that_looks_at_nothing_ahead_queues_no_drafts() -> None:
    stream = Drafted(listed(head=True, looks_ahead=False), [3, 1], 4).open()
    for _ in range(4):
        stream.ask()
        stream.round()
    assert stream.counts == (0, 0, 0)
