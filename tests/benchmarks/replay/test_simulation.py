"""The simulated target keeps what equals the reply, and what is counted adds up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tensorfold.domain.drafting.sources import CHAINS as WIDE
from tensorfold.domain.drafting.sources import Widths
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import chain, tree
from tests.benchmarks.replay.baselines.fixed_window import FixedWindow, FixedWindowFactory
from tests.benchmarks.replay.costs import CHAINS, STATED
from tests.benchmarks.replay.ours import recall
from tests.benchmarks.replay.own_drafts import CHANCES, LANDING, OwnDrafts
from tests.benchmarks.replay.policy import Off, WithSource
from tests.benchmarks.replay.samples import END, VOCABULARY, again, ids, request
from tests.benchmarks.replay.simulation import draws, replay
from tests.benchmarks.replay.workload import Request, Workload

NEVER: frozenset[int] = frozenset()


def test_a_chain_is_kept_as_far_as_it_equals_the_reply() -> None:
    reply = (5, 6, 7, 8, 9, END)
    for right in range(4):
        drafts = [6, 7, 8, 9][:right] + [99] * (4 - right)
        window = chain(5, drafts)
        accepted = accept(window, draws(window, reply, 1), 100, NEVER)
        assert accepted.tokens == reply[1 : right + 2]


def test_the_branch_of_a_tree_that_equals_the_reply_is_kept() -> None:
    reply = (5, 6, 7, 8, END)
    window = tree(5, [99, 6, 98, 7, 97, 8], [0, 0, 2, 2, 4, 4])
    accepted = accept(window, draws(window, reply, 1), 100, NEVER)
    assert (accepted.path, accepted.tokens) == ((0, 2, 4, 6), (6, 7, 8, END))


def test_rows_behind_the_replys_end_draw_its_last_id() -> None:
    assert draws(chain(5, [6, END, 1, 2]), (5, 6, END), 1) == [6, END, END, END, END]


def test_own_drafts_land_as_often_as_stated_and_the_same_in_every_run() -> None:
    reply = ids(1, 4000)
    own, twin = OwnDrafts(reply, VOCABULARY, 3), OwnDrafts(reply, VOCABULARY, 3)
    landed = [0] * len(LANDING)
    for at in range(len(reply) - 3):
        offer = own.at(at, 100)
        assert offer is not None
        assert (offer, offer.chances) == (twin.at(at, 100), CHANCES)
        right = [draft == wanted for draft, wanted in zip(offer.tokens, reply[at:], strict=False)]
        kept = right.index(False) if False in right else len(right)
        for depth in range(kept):
            landed[depth] += 1
    assert [count / len(reply) for count in landed] == pytest.approx(CHANCES, abs=0.03)


def test_own_drafts_keep_to_the_room_that_is_left() -> None:
    own = OwnDrafts(ids(1, 10), VOCABULARY, 3)
    assert own.at(5, 0) is None
    assert [len(own.at(5, limit) or ()) for limit in (1, 2, 3, 9)] == [1, 2, 3, 3]
    assert len(own.at(9, 9) or ()) == 1


def test_a_fault_of_a_source_is_not_passed_over() -> None:
    class Broken(FixedWindowFactory):
        def open(self, prompt: Sequence[int], widths: Widths = WIDE) -> FixedWindow:
            source = super().open(prompt, widths)
            source._index = None  # type: ignore[assignment]
            return source

    factory = Broken()
    with pytest.raises(RuntimeError, match="draft source failed"):
        replay(again(1), WithSource("broken", factory, factory.remember), CHAINS, VOCABULARY)


def test_a_reply_whose_end_stands_inside_it_is_no_trace() -> None:
    bad = Request((1, 2), (3, END, 4, END))
    with pytest.raises(ValueError, match="stands inside"):
        replay(Workload("bad", "", (), (bad,)), Off(), CHAINS, VOCABULARY)


def test_what_is_counted_adds_up() -> None:
    tally = replay(again(1, 5), recall(VOCABULARY), CHAINS, VOCABULARY)
    assert tally.tokens == 242
    assert tally.rows == tally.tokens + tally.wasted_rows
    assert tally.landed_ids <= tally.window_ids < tally.rows
    assert tally.rounds <= tally.cost <= 2.6 * tally.rounds
    assert tally.asked == tally.rounds


def test_warming_streams_are_replayed_and_not_counted() -> None:
    warm = request(9)
    cold = Workload("cold", "", (), (warm,))
    warmed = Workload("warmed", "", (), (warm,), warming=(warm,))
    assert replay(warmed, Off(), CHAINS, VOCABULARY).tokens == 121
    # The policy remembers what is counted only, so a warming stream teaches rates and leaves no text.
    assert replay(warmed, Off(), CHAINS, VOCABULARY).tokens == replay(cold, Off(), CHAINS, VOCABULARY).tokens


def test_the_stated_curve_is_the_one_in_the_docs_and_linear_between_points() -> None:
    assert STATED == ((1, 1.0), (2, 1.05), (16, 1.05), (32, 1.4), (64, 2.6))
    assert CHAINS.curve.ms(24) == pytest.approx(1.225)
    assert CHAINS.curve.ms(48) == pytest.approx(2.0)
