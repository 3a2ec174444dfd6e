"""Chunk plans with markers: where chunks begin, what two prompts with one beginning share, what a resume may use."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tensorfold.domain.prompts.checkpoints import agreement, checkpoints, common_cut
from tensorfold.domain.prompts.chunks import ChunkPlan, ChunkRule
from tensorfold.domain.prompts.markers import Markers
from tensorfold.domain.prompts.retained import fits_plan, ids_of
from tests.domain.prompts.prompts import ASSISTANT, MARKERS, OPEN, RULE, USER, prompt


def test_chunks_begin_at_assistant_messages_and_at_the_second_message() -> None:
    ids = [OPEN, 9, *[7] * 8, OPEN, USER, *[7] * 8, OPEN, ASSISTANT, *[7] * 30, OPEN, USER, *[7] * 9, OPEN, ASSISTANT]
    plan = RULE.plan(ids)
    # 61 is a user's message: no chunk begins there.
    assert plan.starts == (0, 10, 20, 44, 52 + 11)
    assert plan.shared == 10
    assert plan.end == len(ids) - 1 == 64


def test_a_message_start_too_near_to_the_last_start_is_passed_over() -> None:
    ids = [OPEN, ASSISTANT, 7, 7, OPEN, ASSISTANT, 7, 7, OPEN, ASSISTANT, *[7] * 5]
    assert RULE.plan(ids).starts == (0, 8)
    assert RULE.plan(ids).shared == 0


def test_without_markers_the_plan_is_the_plain_grid() -> None:
    assert ChunkRule(4).plan(range(11)).starts == (0, 4, 8)
    assert ChunkRule(4).plan(range(9)).starts == (0, 4)
    assert ChunkRule(4).plan([5]) == ChunkPlan((), 0)
    assert ChunkRule(2048).name == "grid2048"
    assert ChunkRule(2048, MARKERS).name == "grid2048+msg256:1:1,3"


def test_a_rule_that_makes_no_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot have 256 to 0"):
        ChunkRule(0)
    with pytest.raises(ValueError, match="longer than chunks of 2"):
        ChunkRule(2, Markers(frozenset({1}), (1, 2, 3)))


def test_no_chunk_is_shorter_than_the_least_but_the_last_and_none_longer_than_a_step() -> None:
    random_ = random.Random(3)
    for _ in range(300):
        plan = RULE.plan(prompt(random_, random_.randrange(1, 120)))
        edges = [*plan.starts, plan.end] if plan.starts else [0, 0]
        sizes = [b - a for a, b in itertools.pairwise(edges)]
        assert all(6 <= size <= 24 for size in sizes[:-1])
        assert 0 <= sizes[-1] <= 24


def test_spans_cover_what_is_left_behind_every_cut() -> None:
    random_ = random.Random(4)
    for _ in range(60):
        plan = RULE.plan(prompt(random_, random_.randrange(2, 100)), random_.choice((0, 1, 4)))
        whole = list(plan.spans())
        for at in range(plan.end + 1):
            if at and not plan.cuts_at(at):
                with pytest.raises(ValueError, match=f"no cut at {at}"):
                    list(plan.spans(at))
                continue
            assert list(plan.spans(at)) == [span for span in whole if span[0] >= at]
        assert [p for a, b in whole for p in range(a, b)] == list(range(plan.end))


@pytest.mark.slow
def test_prompts_with_one_beginning_have_one_plan_up_to_every_start_that_both_have() -> None:
    random_, shared = random.Random(5), 0
    for _ in range(2000):
        one = prompt(random_, random_.randrange(2, 100))
        keep = random_.randrange(len(one))
        other = one[:keep] + prompt(random_, random_.randrange(1, 60))
        a, b, agreed = RULE.plan(one), RULE.plan(other), agreement(one, other)
        assert agreed >= keep
        for start in a.starts[1:]:
            if start <= agreed and start in b.starts:
                assert a.before(start) == b.before(start)
                shared += 1
        sure = agreed - len(MARKERS.assistant)
        assert [s for s in a.starts if s <= min(sure, b.end - 1)] == [s for s in b.starts if s <= min(sure, a.end - 1)]
    assert shared > 1000


def test_a_state_serves_a_prompt_only_where_its_ids_and_its_chunks_are_the_prompts_own() -> None:
    random_, served, edited = random.Random(6), 0, 0
    for _ in range(400):
        ids = prompt(random_, random_.randrange(30, 90))
        plan = RULE.plan(ids)
        at = random_.choice(plan.starts[1:] or (plan.end,))
        kept, starts = ids_of(ids[:at]), plan.before(at)
        assert fits_plan(kept, starts, ids_of(ids), plan)
        place = random_.randrange(len(ids))
        changed = [*ids[:place], 9, *ids[place + 1 :]]
        fits = fits_plan(kept, starts, ids_of(changed), RULE.plan(changed))
        if place < at:
            assert not fits
            edited += 1
        elif fits:
            served += 1
    assert served > 50 and edited > 50
    assert not fits_plan(ids_of(ids), plan.starts, ids_of(ids), plan)


def test_states_are_kept_at_the_last_start_the_shared_one_and_where_the_last_prompt_went_along() -> None:
    plan = ChunkPlan((0, 10, 30, 50, 70), 80, shared=10)
    assert checkpoints(plan, 0) == (10, 70)
    assert checkpoints(plan, 10) == (70,)
    assert checkpoints(plan, 0, agreed=55) == (10, 50, 70)
    assert checkpoints(plan, 0, agreed=39) == (10, 70)
    assert checkpoints(plan, 70) == ()
    assert checkpoints(ChunkPlan((0,), 5), 0) == ()


def test_two_prompts_share_the_last_cut_that_is_worth_waiting_for() -> None:
    plan = ChunkPlan((0, 10, 30), 40)
    assert common_cut(plan, plan, 41, 0, 10) == 40
    assert common_cut(plan, ChunkPlan((0, 10, 30, 45), 60), 35, 0, 10) == 30
    assert common_cut(plan, ChunkPlan((0, 10, 29), 40), 41, 0, 10) == 10
    assert common_cut(plan, plan, 41, 31, 10) is None
    assert common_cut(plan, plan, 9, 0, 5) is None


def test_at_half_of_a_prompt_an_agreement_counts_and_at_a_cut_itself_two_prompts_meet() -> None:
    plan = ChunkPlan((0, 10, 30, 50, 70), 80, shared=10)
    assert checkpoints(plan, 0, agreed=40) == (10, 30, 70)
    assert common_cut(plan, plan, 80, 0, 10) == 80 and common_cut(plan, plan, 79, 0, 10) == 70


def test_a_plan_answers_for_every_position() -> None:
    plan = ChunkPlan((0, 10, 20), 25, slice_rows=4)
    assert [at for at in range(-1, 27) if plan.cuts_at(at)] == [4, 8, 10, 14, 18, 20, 24, 25]
    assert ChunkPlan((0,), 9, slice_rows=1).cuts_at(1) and not ChunkPlan((0, 10), 25).cuts_at(5)
    assert [plan.before(at) for at in (0, 9, 10, 11, 25)] == [(), (0,), (0,), (0, 10), (0, 10, 20)]
    assert [plan.floor(at) for at in (-1, 0, 9, 10, 25)] == [0, 0, 0, 10, 20] and ChunkPlan((), 0).floor(5) == 0


def test_the_smallest_rules_make_plans() -> None:
    assert ChunkRule().step == 2048 and ChunkRule().plan([]) == ChunkPlan((), 0)
    assert ChunkRule(4, least=1).plan(range(9)).starts == (0, 4)
    assert ChunkRule(2, Markers(frozenset({1}), (1, 3))).name == "grid2+msg2:1:1,3"
    with pytest.raises(ValueError, match="cannot have 0 to 4"):
        ChunkRule(4, least=0)


def test_agreement_counts_equal_ids_from_the_start() -> None:
    assert agreement([1, 2, 3], [1, 2, 4, 5]) == 2
    assert agreement([1, 2], [1, 2, 3]) == 2
    assert agreement([], [1]) == 0
    assert agreement(np.array([5, 1]), (6, 1)) == 0
