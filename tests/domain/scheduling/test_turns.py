"""Turns: who is served when not everybody fits."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.scheduling.turns import TurnOrder


def served(turns: TurnOrder, ids: Sequence[int], rows: Sequence[int] | None = None) -> list[int]:
    return [ids[index] for index in turns.take(ids, rows or [1] * len(ids))]


def test_everybody_is_served_while_everybody_fits() -> None:
    turns = TurnOrder(4, 8)
    assert turns.take([7, 3, 9], [1, 4, 3]) == (0, 1, 2)
    assert turns.take([7, 3, 9, 1], [2, 2, 2, 2]) == (0, 1, 2, 3)
    assert turns.take([], []) == ()


def test_more_streams_than_a_round_holds_take_turns() -> None:
    turns, ids = TurnOrder(2, 32), [1, 2, 3, 4, 5]
    assert [served(turns, ids) for _ in range(5)] == [[1, 2], [3, 4], [1, 5], [2, 3], [4, 5]]


def test_rows_bound_a_round_as_streams_do() -> None:
    turns, ids = TurnOrder(32, 4), [1, 2, 3]
    assert [served(turns, ids, [2, 2, 2]) for _ in range(4)] == [[1, 2], [1, 3], [2, 3], [1, 2]]


def test_the_first_that_does_not_fit_is_not_passed_over() -> None:
    turns = TurnOrder(32, 4)
    assert served(turns, [1, 2, 3], [2, 3, 1]) == [1]
    assert served(turns, [1, 2, 3], [2, 3, 1]) == [2, 3]


def test_a_stream_with_more_rows_than_a_round_holds_is_served_alone() -> None:
    turns = TurnOrder(32, 4)
    assert served(turns, [1, 2], [9, 1]) == [1]
    assert served(turns, [1, 2], [9, 1]) == [2]
    assert served(turns, [1, 2], [9, 1]) == [1]
    assert served(TurnOrder(32, 4), [5], [9]) == [5]


def test_indices_come_back_ascending_so_that_rows_keep_their_order() -> None:
    turns, ids = TurnOrder(2, 32), [1, 2, 3]
    turns.take(ids, [1, 1, 1])
    assert turns.take(ids, [1, 1, 1]) == (0, 2)


def test_newcomers_line_up_behind_those_that_wait() -> None:
    turns = TurnOrder(1, 32)
    assert served(turns, [1, 2]) == [1]
    for newcomer in range(3, 9):
        ids = [2, newcomer] if newcomer % 2 else [newcomer, 2]
        assert served(turns, ids) == [2]
        assert served(turns, ids) == [newcomer]


def test_a_round_in_which_all_fit_wipes_the_slate() -> None:
    turns = TurnOrder(2, 32)
    assert served(turns, [1, 2, 3]) == [1, 2]
    assert served(turns, [2, 3]) == [2, 3]
    assert served(turns, [1, 2, 3]) == [1, 2]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    max_streams=st.integers(1, 5),
    batch_rows=st.integers(1, 9),
    rows=st.lists(st.integers(1, 4), min_size=1, max_size=9),
    rounds=st.integers(1, 30),
)
@pytest.mark.slow
def test_every_stream_is_served_within_its_share_of_rounds(
    max_streams: int, batch_rows: int, rows: list[int], rounds: int
) -> None:
    turns, ids = TurnOrder(max_streams, batch_rows), list(range(100, 100 + len(rows)))
    per_round = min(max_streams, max(1, batch_rows // max(rows)))
    bound = -(-len(ids) // per_round)
    waited = dict.fromkeys(ids, 0)
    for _ in range(rounds):
        taken = turns.take(ids, rows)
        assert list(taken) == sorted(set(taken)) != []
        assert len(taken) <= max_streams
        assert sum(rows[index] for index in taken) <= batch_rows or len(taken) == 1
        for index, stream in enumerate(ids):
            waited[stream] = 0 if index in taken else waited[stream] + 1
            assert waited[stream] < bound


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    replaced=st.lists(st.sets(st.integers(0, 7)), max_size=20), max_streams=st.integers(1, 4), lanes=st.integers(1, 8)
)
@pytest.mark.slow
def test_arrivals_and_departures_hold_nobody_up(replaced: list[set[int]], max_streams: int, lanes: int) -> None:
    turns, live, fresh = TurnOrder(max_streams, 64), list(range(lanes)), lanes
    waited: dict[int, int] = {}
    for places in replaced:
        for place in places & set(range(lanes)):
            live[place], fresh = fresh, fresh + 1
        taken = turns.take(live, [1] * lanes)
        # A lane's successor stands where it stood, so the streams of equal standing before it may change but not grow.
        waited = {s: 0 if index in taken else waited.get(s, 0) + 1 for index, s in enumerate(live)}
        assert max(waited.values()) < -(-lanes // max_streams) + 1


@settings(derandomize=True, deadline=None, max_examples=100)
@given(max_streams=st.integers(1, 6), streams=st.integers(1, 9), rounds=st.integers(1, 40))
@pytest.mark.slow
def test_equal_streams_get_equal_turns(max_streams: int, streams: int, rounds: int) -> None:
    turns, counts = TurnOrder(max_streams, 64), [0] * streams
    for _ in range(rounds):
        for index in turns.take(range(streams), [1] * streams):
            counts[index] += 1
    assert max(counts) - min(counts) <= 1


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="2 streams came with 1 row counts"):
        TurnOrder(1, 1).take([1, 2], [1])


@pytest.mark.parametrize("bounds", [(0, 1), (1, 0)])
def test_bounds_below_one_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="a round cannot have"):
        TurnOrder(*bounds)
