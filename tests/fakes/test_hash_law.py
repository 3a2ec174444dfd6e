"""The law of the hash model: order matters, rows are pure, ties and habits come as often as asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.hash_law import WORD, HashLaw, absorb, absorb_all, absorb_rows, mix, nudge

IDS = st.lists(st.integers(0, 63), min_size=1, max_size=30)


def _states(count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array([mix(i * 77 + 1) for i in range(count)], dtype=np.uint64)


def test_the_mixer_is_the_published_one() -> None:
    # First outputs of splitmix64 seeded with 0: its finaliser over multiples of the golden-ratio step.
    assert [mix((i * 0x9E3779B97F4A7C15) & WORD) for i in (1, 2, 3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(IDS, st.integers(0, WORD))
def test_states_are_the_same_one_by_one_and_by_arrays(ids: list[int], start: int) -> None:
    state = start
    states = np.array([start], dtype=np.uint64)
    for token in ids:
        state = absorb(state, token)
        states = absorb_rows(states, np.array([token], dtype=np.int64))
    assert state == absorb_all(start, ids) == int(states[0])


@settings(derandomize=True, deadline=None, max_examples=60)
@given(IDS, IDS)
def test_different_histories_leave_different_states(one: list[int], two: list[int]) -> None:
    law = HashLaw()
    assert (law.state_of(one) == law.state_of(two)) == (one == two)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    law = HashLaw(vocabulary=96, habit_share=0.5)
    states, tokens = _states(40), [i % 96 for i in range(40)]
    rows = law.logits(states, tokens)
    for row in range(40):
        assert (law.logits(states[row : row + 1], tokens[row : row + 1])[0] == rows[row]).all()


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_tops_are_tied_as_often_as_asked(share: float) -> None:
    # Seven mantissa bits tie by themselves now and then, twenty-three hardly ever.
    rows = np.sort(HashLaw(tie_share=share, mantissa_bits=23).logits(_states(4000), [0] * 4000), axis=1)
    tied = float((rows[:, -1] == rows[:, -2]).mean())
    assert abs(tied - share) < 0.03


def test_logits_lie_on_the_steps_of_a_short_float() -> None:
    rows = HashLaw(tie_share=0.0).logits(_states(100), [0] * 100)
    assert ((rows.view(np.uint32) & 0xFFFF) == 0).all()
    assert rows.min() >= 0.0 and rows.max() < 8.0
    assert len(np.unique(rows)) < rows.size / 4


def test_habits_lead_as_often_as_asked() -> None:
    law = HashLaw(habit_share=0.6, tie_share=0.0)
    tokens = [i % 64 for i in range(4000)]
    rows = law.logits(_states(4000), tokens)
    led = np.mean([row.argmax() == law.habit(token) for row, token in zip(rows, tokens, strict=True)])
    assert abs(led - 0.6) < 0.04


def test_salts_make_different_models() -> None:
    one, two = HashLaw(salt=1), HashLaw(salt=2)
    assert one.state_of([1, 2]) != two.state_of([1, 2])
    assert [one.habit(t) for t in range(64)] != [two.habit(t) for t in range(64)]


def test_a_nudge_is_one_unit_in_the_last_place_and_turns_some_ties() -> None:
    rows = HashLaw(tie_share=1.0).logits(_states(200), [0] * 200)
    before = rows.copy()
    nudge(rows)
    steps = rows.view(np.uint32).astype(np.int64) - before.view(np.uint32)
    assert set(np.unique(steps)) == {0, 1}
    assert 20 < int((rows.argmax(axis=1) != before.argmax(axis=1)).sum()) < 120
