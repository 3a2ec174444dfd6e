"""Draft heads through the real scheduler: exact at every depth and width, worth their time, harmless when broken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorfold.application.ports.target_model import Chain, HeadLimits, Lattice, ModelCosts, ProposeSpec
from tensorfold.application.replies import Ended
from tensorfold.application.settings import DraftSettings, EngineSettings
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.sampling import Sampling
from tests.application.house import Read, idle, law, read, request, serving
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.hash_head import AnyHead, HashDrafter, HashHead
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase, SerialReply, serial_references
from tests.fakes.wrapped_model import WrappedModel

LAW = law(17, habit=0.3)
CHEAP = ModelCosts(((1, 1.0), (16, 1.1), (64, 1.5)), 0.01, head_ms=(0.01,) * 8)
SURE = (1.0,) * 7
FORCED = EngineSettings(force_windows=True)
Offers = Sequence[Chain | Lattice | None]


class Watched(WrappedModel):
    """Keeps what was asked of the head, and may answer otherwise."""

    def __init__(self, inner: HashModel, answer: Callable[[Sequence[ProposeSpec], Offers], Any] | None = None) -> None:
        super().__init__(inner)
        self.asked: list[tuple[ProposeSpec, ...]] = []
        self._answer = answer

    def propose(self, specs: Sequence[ProposeSpec]) -> Offers:
        self.asked.append(tuple(specs))
        offers = self.inner.propose(specs)
        answered: Offers = offers if self._answer is None else self._answer(specs, offers)
        return answered


def cases(count: int = 6, tokens: int = 40) -> list[SerialCase]:
    return [
        SerialCase((i + 1, 5 * i % 60, 7), tokens, Sampling(i, 1.0, 20, 0.95) if i % 2 else Sampling())
        for i in range(count)
    ]


def model(head: AnyHead | None, **settings: Any) -> HashModel:
    return HashModel(LAW, **({"head": head, "costs": CHEAP} | settings))


def run(
    served: Any, asked: Sequence[SerialCase], engine: EngineSettings | None = None, *, copies: bool = False
) -> tuple[list[Read], Any]:
    """The replies, each compared with the serial one, and the counters."""
    expected = serial_references(LAW, asked)
    sources = (CopySourceFactory(),) if copies else ()
    with serving(served, settings=engine or EngineSettings(parallel=4), sources=sources) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in asked]]
        idle(scheduler)
        assert not scheduler.check_integrity()
    for one, reply in zip(got, expected, strict=True):
        equal(one, reply)
    return got, scheduler.counters


def equal(one: Read, reply: SerialReply) -> None:
    assert isinstance(one.end, Ended), one.end
    assert (tuple(one.ids), one.end.reason) == (reply.tokens, reply.finish)


heads = st.one_of(
    st.builds(HashHead, st.lists(st.sampled_from([0.0, 0.5, 0.9, 1.0]), min_size=1, max_size=9).map(tuple)),
    st.builds(
        HashDrafter,
        st.lists(st.sampled_from([0.0, 0.5, 0.9, 1.0]), min_size=1, max_size=9).map(tuple),
        width=st.integers(1, 8),
        lead=st.sampled_from([0.0, 3.0, 20.0]),
    ),
)


@settings(derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(heads, st.integers(1, 16), st.integers(1, 16), st.booleans(), st.booleans(), st.integers(1, 6), st.booleans())
@pytest.mark.slow
def test_a_reply_drafted_by_a_head_equals_the_serial_one_at_every_depth_and_width(
    head: AnyHead, chain: int, tree: int, force: bool, copies: bool, parallel: int, shares: bool
) -> None:
    served = model(head, chain_width=chain, tree_width=tree, shares_rounds=shares, audit=True)
    run(served, cases(5, 24), EngineSettings(parallel=parallel, force_windows=force), copies=copies)
    assert served.lanes() == () and served.unsettled() == () and not served.misuses


@pytest.mark.parametrize("head", [HashHead(SURE), HashDrafter(SURE, lead=30.0)])
def test_the_first_round_is_drafted_too(head: AnyHead) -> None:
    got, counters = run(model(head), [SerialCase((3, 9, 4), 8)], FORCED)
    assert got[0].ended and counters.rounds == 1 and counters.kept == {"head": 7}


def test_a_prompt_of_one_id_has_nothing_to_draft_from_in_its_first_round() -> None:
    _, counters = run(model(HashHead(SURE)), [SerialCase((3,), 9)], FORCED)
    assert counters.rounds == 2 and counters.kept == {"head": 7}


def test_a_head_drafts_behind_copies_that_were_verified_and_behind_rounds_without_it() -> None:
    asked = [SerialCase((5, 6, 7, 8) * 6, 120, Sampling(3, 1.0)), SerialCase((9, 2, 9, 2, 9), 120)]
    _, counters = run(model(HashHead((0.9, 0.7, 0.6))), asked, FORCED, copies=True)
    named = "+".join(counters.kept)
    assert "head" in named and "copy" in named and counters.kept_total > 50


@pytest.mark.parametrize(("drafts", "rounds"), [(None, 1), (7, 1), (3, 2), (1, 4), (0, 8), (64, 1)])
def test_the_most_drafts_are_the_flags_or_the_heads_own(drafts: int | None, rounds: int) -> None:
    served = Watched(model(HashHead(SURE)))
    engine = EngineSettings(force_windows=True, heads=DraftSettings(mtp_drafts=drafts))
    _, counters = run(served, [SerialCase((3, 9, 4), 8)], engine)
    assert counters.rounds == rounds and bool(served.asked) == (drafts != 0)


def test_a_block_is_asked_for_whole_whatever_the_flag_for_chains_says() -> None:
    served = Watched(model(HashDrafter(SURE, lead=30.0)))
    run(served, [SerialCase((3, 9, 4), 8)], EngineSettings(force_windows=True, heads=DraftSettings(mtp_drafts=1)))
    assert [spec.depth for (spec,) in served.asked] == [7]


def test_a_chain_ends_where_the_head_is_less_sure_than_asked() -> None:
    head = HashHead((1.0, 0.9, 0.5, 0.9))
    for least, most in ((0.0, 4), (0.6, 2), (0.95, 1), (1.0, 1)):
        served = Watched(model(head))
        asked = EngineSettings(force_windows=True, heads=DraftSettings(mtp_confidence=least))
        _, counters = run(served, [SerialCase((3, 9, 4), 30)], asked)
        assert {spec.min_confidence for (spec,) in served.asked} == {least}
        assert counters.drafted_total <= most * counters.rounds
        assert counters.drafted_total > (most - 1) * (counters.rounds - 1)


def test_a_familys_own_confidence_holds_unless_the_flag_says_otherwise() -> None:
    class Published(HashHead):
        @property
        def limits(self) -> HeadLimits:
            return HeadLimits("chain", 7, 3, min_confidence=0.3, whole_run=True)

    served = Watched(model(Published(SURE)))
    run(served, [SerialCase((3, 9, 4), 8)], FORCED)
    assert {(spec.depth, spec.min_confidence) for specs in served.asked for spec in specs} == {(3, 0.3)}


def test_no_head_is_asked_where_nothing_is_drafted() -> None:
    for engine in (EngineSettings(drafts=False), EngineSettings()):
        served = Watched(model(HashHead(SURE), chain_width=1 if engine.drafts else 8, tree_width=1))
        _, counters = run(served, cases(2, 8), engine)
        assert not served.asked and counters.drafted_total == 0
    serial = Watched(model(HashHead(SURE)))
    with serving(serial) as scheduler:
        read(scheduler.submit(request(cases(1)[0], draft=False)))
    assert not serial.asked


def test_streams_of_one_round_are_asked_about_together() -> None:
    served = Watched(model(HashHead((0.9, 0.5))))
    run(served, cases(4, 60))
    assert max(len(specs) for specs in served.asked) > 1


def test_a_head_that_is_always_wrong_falls_silent() -> None:
    served = Watched(model(HashHead((0.0,) * 7)))
    _, counters = run(served, [SerialCase((3, 9, 4), 200)])
    assert counters.rounds == 200 and len(served.asked) < 60


class Sure(HashHead):
    """Sure of every draft, but right only once it was asked `wrong` times."""

    wrong = 10**9
    times = 0

    def propose(self, *given: Any) -> Chain:
        object.__setattr__(self, "times", self.times + 1)
        drafted = HashHead((float(self.times > self.wrong),) * 7, self.salt).propose(*given)
        return Chain(drafted.tokens, (0.9,) * len(drafted.tokens))


def test_a_head_that_does_not_pay_is_tried_now_and_then_without_a_row_for_its_draft() -> None:
    drafted = []
    for tokens in (200, 400):
        served = Watched(model(Sure(SURE)))
        _, counters = run(served, [SerialCase((3, 9, 4), tokens)])
        drafted.append(counters.drafted_total)
    assert drafted[0] == drafted[1] > 0, "the second half of a reply verified a draft"
    assert [specs[0].depth for specs in served.asked[-3:]] == [1, 1, 1]


def test_a_head_that_begins_to_pay_is_verified_again() -> None:
    class Late(Sure):
        wrong = 26

    served = Watched(model(Late(SURE)))
    _, counters = run(served, [SerialCase((3, 9, 4), 1000)])
    assert len(served.asked) > 50 and counters.rounds < 900


def test_a_head_that_costs_more_than_its_drafts_save_falls_silent() -> None:
    dear = ModelCosts(((1, 1.0), (16, 1.1)), 0.01, head_ms=(50.0,) * 8)
    served = Watched(model(HashHead((0.6, 0.5, 0.4)), costs=dear))
    run(served, [SerialCase((3, 9, 4), 100)], EngineSettings(overhead_ms=0.0))
    assert len(served.asked) < 30


def test_a_head_is_not_asked_where_a_long_copy_will_land_anyway() -> None:
    text = tuple(i * 7 % 61 for i in range(40))
    habits = law(5, habit=1.0)
    free = ModelCosts(((1, 1.0), (16, 1.1)), 0.01, head_ms=(0.0,) * 8)
    counts = []
    for copies in ((), (CopySourceFactory(),)):
        served = Watched(HashModel(habits, head=HashHead((0.6, 0.3)), costs=free, tree_width=1))
        with serving(served, sources=copies, settings=EngineSettings(overhead_ms=0.0)) as scheduler:
            got = read(scheduler.submit(request(SerialCase(text, 200))))
            assert got.ended
            counts.append(len(served.asked) / scheduler.counters.rounds)
    assert counts[1] < counts[0] * 0.7


def test_a_lattice_is_a_chain_where_no_tree_is_verified() -> None:
    _, counters = run(model(HashDrafter(SURE, lead=30.0), tree_width=1), [SerialCase((3, 9, 4), 8)], FORCED)
    assert counters.rounds == 1 and counters.kept == {"head": 7}


# -- broken heads --------------------------------------------------------------------------------------------------


def _foreign(specs: Sequence[ProposeSpec], offers: Offers) -> Offers:
    return [Chain((64, -1, 2**70), (1.0, 1.0, 1.0)) for _ in specs]


def _misfits(specs: Sequence[ProposeSpec], offers: Offers) -> Offers:
    lattice = Lattice((np.array([1, 2]),), (np.zeros(3),), (np.zeros((1, 2)),))
    return [lattice for _ in specs]


def _no_numbers(specs: Sequence[ProposeSpec], offers: Offers) -> Offers:
    odd = (float("nan"), float("inf"), -1.0, 1e308)
    return [Chain((1, 2, 3, 4), odd) for _ in specs]


def _too_long(specs: Sequence[ProposeSpec], offers: Offers) -> Offers:
    return [Chain((1,) * 500, (1.0,) * 500) for _ in specs]


BROKEN: dict[str, Callable[[Sequence[ProposeSpec], Offers], Any]] = {
    "too few answers": lambda specs, offers: offers[1:],
    "too many answers": lambda specs, offers: [*offers, None],
    "no answer at all": lambda specs, offers: None,
    "another type": lambda specs, offers: ["drafts"] * len(offers),
    "nothing to say": lambda specs, offers: [None] * len(offers),
    "foreign ids": _foreign,
    "parts that misfit": _misfits,
    "no numbers": _no_numbers,
    "too long": _too_long,
    "no confidence": lambda specs, offers: [Chain((1, 2, 3), ()) for _ in specs],
    "empty": lambda specs, offers: [Chain((), ()) for _ in specs],
    "ids of another type": lambda specs, offers: [Chain((np.int64(3), "x"), (1.0, 1.0)) for _ in specs],  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.slow
def test_a_broken_head_changes_no_token_and_ends_no_stream(name: str, force: bool) -> None:
    served = Watched(model(HashHead()), BROKEN[name])
    run(served, cases(), EngineSettings(parallel=3, force_windows=force), copies=True)
    assert served.asked


@pytest.mark.parametrize("after", [False, True])
def test_a_head_that_raises_costs_its_drafts_alone_and_is_told_of(after: bool) -> None:
    inner = model(HashHead(SURE))
    served = FaultyModel(inner, [Fault("propose", after=after)])
    said: list[str] = []
    asked = cases(3)
    with serving(served, sources=(CopySourceFactory(),), log=said.append) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in asked]]
    for one, reply in zip(got, serial_references(LAW, asked), strict=True):
        equal(one, reply)
    assert scheduler.counters.failed == 0 and scheduler.counters.proposer_faults > 3
    assert "head" not in scheduler.counters.drafted and not inner.misuses
    assert len([line for line in said if "draft source head failed" in line]) == 3


def test_a_head_that_hangs_is_a_call_that_can_be_told_stuck() -> None:
    fault = Fault("propose", nth=1, block=threading.Event(), error=None)
    quick = EngineSettings(stall_grace_s=0.0, stall_factor=0.0)
    with serving(FaultyModel(model(HashHead()), [fault]), settings=quick) as scheduler:
        generation = scheduler.submit(request(cases(1)[0]))
        assert fault.entered.wait(10.0)
        call = scheduler.engine.flight.stuck()
        assert call is not None and call.what == "head"
        assert fault.block is not None
        fault.block.set()
        assert read(generation).ended
