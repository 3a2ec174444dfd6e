"""Prompts beside replies: short ones are not held up, replies keep their share, the foreground goes first."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tensorfold.application.replies import Ended, Landed
from tensorfold.application.settings import EngineSettings
from tests.application.house import Read, idle, read
from tests.application.prompt_house import SAMPLED, Kept, fresh, keeping, model, request, words
from tests.fakes.clock import FakeClock
from tests.fakes.hash_model import HashModel
from tests.fakes.paced_model import PacedModel

SLICE = 16


class Stepped(PacedModel):
    """Calls take a fake clock's time; what was called is written down, and `on_call` may act behind each call."""

    def __init__(self, inner: HashModel, clock: FakeClock, launch_s: float, row_s: float) -> None:
        super().__init__(inner, clock.advance, launch_s, row_s)
        self.calls: list[tuple[str, int, float]] = []
        self.clock = clock
        self.on_call: Callable[[], None] = lambda: None

    def collect(self, ticket: Any) -> Any:
        before = self.clock.monotonic()
        draws = super().collect(ticket)
        took = self.clock.monotonic() - before
        self.calls.append(("round" if draws.tokens else "slice", ticket.rows, took))
        self.on_call()
        return draws


def prompt(seed: int, count: int) -> list[int]:
    return words(random.Random(seed), count)


def stepped(launch_s: float = 0.01, row_s: float = 0.001) -> tuple[Stepped, FakeClock]:
    clock = FakeClock()
    return Stepped(model(prefill_slice=SLICE), clock, launch_s, row_s), clock


def test_a_short_request_gets_its_first_token_within_two_slices_of_a_long_prompt() -> None:
    target, clock = stepped()
    with keeping(target, 0, clock=clock, settings=EngineSettings(parallel=4)) as server:
        submitted: list[Any] = []

        def arrive() -> None:
            if len(target.calls) == 5:
                submitted.append(server.scheduler.submit(request(prompt(2, SLICE), 3)))

        target.on_call = arrive
        long = server.scheduler.submit(request(prompt(1, 2000), 2))
        read(long)
        got = read(submitted[0])
    after = [kind for kind, _, _ in target.calls[5:]]
    assert after.index("round") <= 2
    assert got.ids == fresh([prompt(2, SLICE)], tokens=3, prefill_slice=SLICE)[0].ids


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_replies_keep_their_share_of_the_time_while_a_prompt_is_read(share: float) -> None:
    target, clock = stepped(launch_s=0.05)
    settings = EngineSettings(parallel=2, decode_share=share)
    with keeping(target, 0, clock=clock, settings=settings) as server:
        submitted: list[Any] = []

        def arrive() -> None:
            if not submitted and target.calls[-1][0] == "round":
                submitted.append(server.scheduler.submit(request(prompt(1, 3000), 1)))

        target.on_call = arrive
        reply = server.scheduler.submit(request(prompt(2, 5), 2000, draft=False))
        generation = next(iter([reply]))
        while not submitted or server.scheduler.loads()[1] or not _slices(target):
            assert isinstance(generation.next(30.0), Landed)
        read(submitted[0])
        generation.cancel()
        read(generation)
    first = next(at for at, call in enumerate(target.calls) if call[1] == SLICE and at > 2)
    last = max(at for at, call in enumerate(target.calls) if call[0] == "slice")
    during = target.calls[first : last + 1]
    slices = sum(took for kind, _, took in during if kind == "slice")
    rounds = sum(took for kind, _, took in during if kind == "round")
    # Within one round and one slice of what was promised, over the whole prompt.
    assert abs(rounds - share * slices) <= 0.05 + share * SLICE * 0.001


def _slices(target: Stepped) -> int:
    return sum(kind == "slice" and rows == SLICE for kind, rows, _ in target.calls)


def test_without_a_share_each_prompt_is_read_whole_in_order_of_arrival_before_any_round() -> None:
    target, clock = stepped()
    settings = EngineSettings(parallel=4, decode_share=0.0)
    with keeping(target, 0, clock=clock, settings=settings) as server:
        gate: list[Any] = []

        def arrive() -> None:
            if not gate:
                gate.extend(server.scheduler.submit(request(prompt(n, 100), 4)) for n in (2, 3))

        target.on_call = arrive
        first = server.scheduler.submit(request(prompt(1, 200), 4))
        for generation in (first, *gate):
            read(generation)
        for generation in gate:
            read(generation)
    kinds = [kind for kind, _, _ in target.calls]
    assert "slice" not in kinds[kinds.index("round") :]
    sizes = [rows for kind, rows, _ in target.calls if kind == "slice"]
    assert sum(sizes) == 199 + 99 + 99 and sizes[:13] == [*[SLICE] * 12, 7]


def test_a_long_prompt_is_read_to_its_end_while_short_ones_keep_coming() -> None:
    target, clock = stepped()
    settings = EngineSettings(parallel=2, queue=8)
    with keeping(target, 0, clock=clock, settings=settings) as server:
        long = server.scheduler.submit(request(prompt(1, 600), 1))
        done, others = list[Read](), [server.scheduler.submit(request(prompt(90, 40), 1))]

        def arrive() -> None:
            # One short prompt is always there, until the long one is through.
            if not done and others[-1].cancelled is False and server.scheduler.loads()[2] == 0 and len(others) < 400:
                others.append(server.scheduler.submit(request(prompt(100 + len(others), 40), 1)))

        target.on_call = arrive
        got = read(long)
        done.append(got)
        for other in others:
            read(other)
    assert isinstance(got.end, Ended) and len(others) < 400


@pytest.mark.parametrize("reads_on", [False, True])
def test_a_background_request_yields_and_its_reply_is_what_it_would_be_alone(reads_on: bool) -> None:
    """Once while it decodes, once while its prompt is read."""
    background, foreground = prompt(1, 300), [prompt(n, 20) for n in range(2, 6)]
    expected = fresh([background, *foreground], tokens=40, prefill_slice=SLICE)
    target, clock = stepped()
    with keeping(target, clock=clock, settings=EngineSettings(parallel=1)) as server:
        waiting, submitted = list(foreground), list[Any]()

        def arrive() -> None:
            at = len(target.calls)
            alone = server.scheduler.loads()[2] == 0
            due = (at == 6) if reads_on else (at >= 24 and at % 7 == 0 and alone)
            if waiting and due:
                submitted.append(server.scheduler.submit(request(waiting.pop(), 40)))

        target.on_call = arrive
        slow = server.scheduler.submit(request(background, 40, background=True))
        got = read(slow)
        assert got.ids == expected[0].ids
        others = [read(generation) for generation in submitted]
        idle(server.scheduler)
        assert not server.scheduler.check_integrity()
        counters = server.scheduler.counters
        assert counters.preempted == len(submitted) == (1 if reads_on else len(foreground))
        assert counters.completion_tokens == 40 * (1 + len(submitted))
        if reads_on:
            # What was read of the prompt was kept: at most the slice at hand is read again.
            assert server.filled <= 299 + 19 + SLICE
    by_prompt = {tuple(p): one.ids for p, one in zip([background, *foreground], expected, strict=True)}
    assert [one.ids for one in others] == [by_prompt[g.request.prompt] for g in submitted]


def test_a_background_request_whose_prompt_another_read_meanwhile_goes_on_from_there() -> None:
    """It yields while its prompt is read, to two of the same prompt, whose kept end leaves nothing of it to read."""
    same = prompt(1, 300)
    expected = fresh([same], tokens=40, prefill_slice=SLICE)[0]
    target, clock = stepped()
    with keeping(target, clock=clock, settings=EngineSettings(parallel=2)) as server:
        submitted: list[Any] = []

        def arrive() -> None:
            if len(target.calls) == 4:
                submitted.extend(server.scheduler.submit(request(same, 40)) for _ in range(2))

        target.on_call = arrive
        slow = server.scheduler.submit(request(same, 40, background=True))
        got = read(slow)
        assert [one.ids for one in (got, *map(read, submitted))] == [expected.ids] * 3
        idle(server.scheduler)
        assert not server.scheduler.check_integrity() and server.scheduler.counters.preempted == 1


def test_the_background_runs_when_the_foreground_is_gone_and_in_its_own_order() -> None:
    target = model(prefill_slice=SLICE)
    prompts = [prompt(n, 30) for n in range(6)]
    expected = fresh(prompts, tokens=10, prefill_slice=SLICE)
    with keeping(target, settings=EngineSettings(parallel=2)) as server:
        behind = [server.scheduler.submit(request(p, 10, background=True)) for p in prompts[:3]]
        front = [server.scheduler.submit(request(p, 10)) for p in prompts[3:]]
        got = [read(g) for g in (*behind, *front)]
        idle(server.scheduler)
        assert not server.scheduler.check_integrity() and not target.misuses
    assert [one.ids for one in got] == [one.ids for one in expected]


def yields_then(server: Kept, target: Stepped, do: Callable[[], object]) -> list[Any]:
    """A request in the foreground after 25 calls of the model, and something done after 32; what was submitted."""
    submitted: list[Any] = []

    def arrive() -> None:
        if len(target.calls) == 25:
            submitted.append(server.scheduler.submit(request(prompt(2, 50), 30)))
        if len(target.calls) == 32:
            do()

    target.on_call = arrive
    return submitted


def test_a_request_that_yielded_may_be_cancelled() -> None:
    target, clock = stepped()
    with keeping(target, clock=clock, settings=EngineSettings(parallel=1)) as server:
        submitted = yields_then(server, target, lambda: slow.cancel())
        slow = server.scheduler.submit(request(prompt(1, 100), 40, background=True))
        got: Read = read(slow)
        assert not isinstance(got.end, Ended) and server.scheduler.counters.preempted == 1
        assert read(submitted[0]).ids == fresh([prompt(2, 50)], tokens=30, prefill_slice=SLICE)[0].ids
        idle(server.scheduler)
        assert not server.scheduler.check_integrity()


def test_a_server_that_ends_ends_those_that_yielded() -> None:
    target, clock = stepped()
    with keeping(target, clock=clock, settings=EngineSettings(parallel=1)) as server:
        submitted = yields_then(server, target, lambda: server.scheduler.stop(0.0))
        slow = server.scheduler.submit(request(prompt(1, 100), 40, background=True, sampling=SAMPLED))
        assert read(slow).failed and read(submitted[0]).failed
