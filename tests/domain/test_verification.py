"""Which drafts stand: those that the target draws itself, along one path."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.verification import Acceptance, accept
from tensorfold.domain.windows import Window, chain, tree

NONE = frozenset[int]()


def test_a_window_without_drafts_lands_its_one_draw() -> None:
    assert accept(chain(1), [5], 10, NONE) == Acceptance((0,), (5,))


def test_drafts_stand_up_to_the_first_that_was_not_drawn() -> None:
    window = chain(1, [2, 3, 4])
    assert accept(window, [2, 3, 4, 5], 10, NONE) == Acceptance((0, 1, 2, 3), (2, 3, 4, 5))
    assert accept(window, [2, 3, 9, 5], 10, NONE) == Acceptance((0, 1, 2), (2, 3, 9))
    assert accept(window, [2, 9, 4, 5], 10, NONE) == Acceptance((0, 1), (2, 9))
    assert accept(window, [9, 3, 4, 5], 10, NONE) == Acceptance((0,), (9,))


def test_a_path_goes_down_the_branch_that_was_drawn() -> None:
    window = tree(0, drafts=[1, 2, 3, 4, 3], parents=[0, 0, 1, 2, 2])
    assert accept(window, [2, 0, 3, 0, 0, 7], 10, NONE) == Acceptance((0, 2, 5), (2, 3, 7))
    assert accept(window, [2, 0, 4, 0, 8, 0], 10, NONE) == Acceptance((0, 2, 4), (2, 4, 8))
    assert accept(window, [1, 4, 0, 0, 0, 0], 10, NONE) == Acceptance((0, 1), (1, 4))


def test_a_right_token_under_the_wrong_parent_does_not_stand() -> None:
    window = tree(0, drafts=[1, 2, 5], parents=[0, 0, 1])
    assert accept(window, [2, 0, 5, 0], 10, NONE) == Acceptance((0, 2), (2, 5))


def test_of_equal_siblings_the_first_counts_and_the_others_lose_their_branches() -> None:
    window = tree(0, drafts=[1, 1, 2, 3], parents=[0, 0, 2, 1])
    assert accept(window, [1, 3, 2, 0, 6], 10, NONE) == Acceptance((0, 1, 4), (1, 3, 6))
    assert accept(window, [1, 2, 2, 0, 6], 10, NONE) == Acceptance((0, 1), (1, 2))


@pytest.mark.parametrize("room", [1, 2, 3, 4, 5])
def test_no_more_tokens_land_than_there_is_room_for(room: int) -> None:
    accepted = accept(chain(0, [1, 2, 3]), [1, 2, 3, 4], room, NONE)
    assert accepted == Acceptance(tuple(range(min(room, 4))), (1, 2, 3, 4)[:room])


@pytest.mark.parametrize("room", [0, -3])
def test_one_token_lands_however_small_the_room(room: int) -> None:
    assert accept(chain(0, [1, 2]), [1, 2, 3], room, NONE) == Acceptance((0,), (1,))


def test_nothing_is_verified_behind_an_end_token() -> None:
    window = chain(0, [1, 2, 3])
    assert accept(window, [1, 2, 3, 4], 10, frozenset({2})) == Acceptance((0, 1), (1, 2))
    assert accept(window, [1, 2, 3, 4], 10, frozenset({1})) == Acceptance((0,), (1,))
    assert accept(window, [1, 2, 3, 4], 10, frozenset({3, 4})) == Acceptance((0, 1, 2), (1, 2, 3))
    assert accept(window, [1, 2, 3, 4], 10, frozenset({0, 4})) == Acceptance((0, 1, 2, 3), (1, 2, 3, 4))


def test_forced_rows_are_kept_unread() -> None:
    window = chain(0, [3, 4], forced=[1, 2])
    assert accept(window, [-1, -1, 3, 4, 5], 10, NONE) == Acceptance((0, 1, 2, 3, 4), (3, 4, 5))
    assert accept(window, [-1, -1, 9, 4, 5], 10, NONE) == Acceptance((0, 1, 2), (9,))
    assert accept(chain(0, forced=[1, 2]), [-1, -1, 9], 10, frozenset({-1})) == Acceptance((0, 1, 2), (9,))


def test_forced_tokens_take_their_part_of_the_room() -> None:
    window = chain(0, [3, 4], forced=[1, 2])
    draws = [-1, -1, 3, 4, 5]
    assert accept(window, draws, 5, NONE).tokens == (3, 4, 5)
    assert accept(window, draws, 4, NONE).tokens == (3, 4)
    assert accept(window, draws, 3, NONE).tokens == (3,)
    assert accept(window, draws, 1, NONE) == Acceptance((0, 1, 2), (3,))


def slow(window: Window, draws: list[int], room: int, stops: frozenset[int]) -> Acceptance:
    path, terminal = list(range(window.forced + 1)), draws[window.forced]
    while len(path) < room and terminal not in stops:
        matches = [r for r in range(len(window)) if window.parents[r] == path[-1] and window.tokens[r] == terminal]
        if not matches or matches[0] <= window.forced:
            break
        path.append(matches[0])
        terminal = draws[matches[0]]
    return Acceptance(tuple(path), (*(window.tokens[r] for r in path[window.forced + 1 :]), terminal))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
@pytest.mark.slow
def test_the_path_of_any_window_is_the_one_a_search_from_each_row_finds(data: st.DataObject) -> None:
    tokens = st.integers(0, 2)
    if data.draw(st.booleans()):
        drafts = data.draw(st.lists(tokens, max_size=14))
        window = tree(0, drafts, [data.draw(st.integers(0, row)) for row in range(len(drafts))])
    else:
        window = chain(0, data.draw(st.lists(tokens, max_size=6)), data.draw(st.lists(tokens, max_size=3)))
    draws = data.draw(st.lists(tokens, min_size=len(window), max_size=len(window)))
    room = data.draw(st.integers(0, 8))
    stops = data.draw(st.sampled_from([NONE, frozenset({2})]))
    assert accept(window, draws, room, stops) == slow(window, draws, room, stops)
