"""Several continuations as one proposal: trunks, forks, votes, chances, and what landed of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.sources import Proposal, sound
from tensorfold.domain.recall.branches import Drafts, Landing, Vote, likeliest, spread

CHANCES = (0.9, 0.8, 0.7, 0.6, 0.5)


def test_one_place_is_copied_with_its_chances() -> None:
    assert likeliest([Vote(1.0, (5, 6, 7))], CHANCES, 9) == Drafts((5, 6, 7), (0.9, 0.8, 0.7))


def test_a_chain_keeps_to_its_rows_and_to_the_chances_given() -> None:
    votes = [Vote(1.0, tuple(range(9))), Vote(1.0, (0, 1, 9))]
    assert likeliest(votes, CHANCES, 2) == Drafts((0, 1), CHANCES[:2])
    assert likeliest(votes[:1], CHANCES, 9) == Drafts((0, 1, 2, 3, 4), CHANCES)
    assert likeliest(votes, CHANCES, 0) == likeliest([], CHANCES, 9) == Drafts((), ())


def test_a_chain_follows_most_votes_and_says_how_many_agree() -> None:
    votes = [Vote(1.0, (1, 2, 3, 4)), Vote(2.0, (1, 5, 6)), Vote(1.0, (1, 5, 7))]
    drafts = likeliest(votes, CHANCES, 9)
    assert drafts.tokens == (1, 5, 6)
    assert drafts.chances == pytest.approx((0.9, 0.75 * 0.8, 0.5 * 0.7))
    assert drafts.parents is None


def test_of_equal_votes_the_earlier_place_wins() -> None:
    assert likeliest([Vote(1.0, (1, 2)), Vote(1.0, (1, 3))], CHANCES, 9).tokens == (1, 2)
    assert likeliest([Vote(1.0, (1, 3)), Vote(1.0, (1, 2))], CHANCES, 9).tokens == (1, 3)


def test_a_place_that_ends_leaves_its_vote_to_those_that_go_on() -> None:
    drafts = likeliest([Vote(3.0, (1,)), Vote(1.0, (1, 2, 3))], CHANCES, 9)
    assert drafts == Drafts((1, 2, 3), CHANCES[:3])


def test_places_that_agree_make_a_chain_of_any_tree() -> None:
    votes = [Vote(1.0, (1, 2, 3)), Vote(2.0, (1, 2))]
    assert spread(votes, CHANCES, 9, 0.9) == Drafts((1, 2, 3), CHANCES[:3])


def test_a_tree_has_one_trunk_and_a_branch_for_each_way() -> None:
    drafts = spread([Vote(3.0, (1, 2, 3)), Vote(1.0, (1, 4, 5))], CHANCES, 9, 0.9)
    assert drafts.tokens == (1, 2, 3, 4, 5)
    assert drafts.parents == (0, 1, 2, 1, 4)
    assert drafts.chances == pytest.approx((0.9, 0.75 * 0.8, 0.75 * 0.7, 0.25 * 0.8, 0.25 * 0.7))


def test_a_tree_takes_its_rows_best_chance_first() -> None:
    votes = [Vote(3.0, (1, 2, 3, 6, 7)), Vote(2.0, (4, 5))]
    drafts = spread(votes, (0.9, 0.8, 0.3, 0.2, 0.1), 4, 0.9)
    assert drafts.tokens == (1, 2, 4, 5)
    assert drafts.parents == (0, 1, 0, 3)
    assert spread(votes, (0.9, 0.8, 0.3, 0.2, 0.1), 3, 0.9).tokens == (1, 2, 4)


def test_of_equal_chances_the_earlier_place_comes_first() -> None:
    drafts = spread([Vote(1.0, (1,)), Vote(1.0, (2,)), Vote(1.0, (3,))], CHANCES, 9, 0.9)
    assert drafts.tokens == (1, 2, 3)
    assert drafts.parents == (0, 0, 0)


def test_a_tree_is_no_deeper_than_the_chances_given() -> None:
    drafts = spread([Vote(1.0, (1, 2, 3)), Vote(1.0, (4, 5, 6))], CHANCES[:2], 9, 0.9)
    assert sorted(drafts.tokens) == [1, 2, 4, 5]


@pytest.mark.parametrize(("weight", "forks"), [(9.0, False), (8.9, True)])
def test_a_way_with_nine_votes_of_ten_is_not_forked(weight: float, forks: bool) -> None:
    drafts = spread([Vote(weight, (1, 2)), Vote(1.0, (1, 3))], CHANCES, 9, 0.9)
    assert (drafts.parents is not None) == forks
    assert drafts.chances[1] == pytest.approx(0.8 * weight / (weight + 1.0))


def test_a_fork_behind_a_fork_is_judged_by_the_votes_that_came_there() -> None:
    votes = [Vote(1.0, (1, 2)), Vote(1.0, (3, 4)), Vote(1.0, (3, 5))]
    assert sorted(spread(votes, CHANCES, 9, 0.9).tokens) == [1, 2, 3, 4, 5]
    assert spread(votes, CHANCES, 9, 0.6).tokens == (3, 4, 5)


@pytest.mark.parametrize(
    ("decided", "rows", "landing"),
    [
        ((1, 2, 3, 4), 3, Landing(3, False, True)),
        ((1, 2, 3), 3, Landing(3, False, True)),
        ((1, 2, 9), 3, Landing(2, True, False)),
        ((9,), 3, Landing(0, True, False)),
        ((1,), 3, Landing(1, False, False)),
        ((), 3, Landing(0, False, False)),
        ((1, 2, 3), 2, Landing(2, False, False)),
        ((1, 9), 1, Landing(1, False, False)),
        ((1, 2, 3, 4), 99, Landing(3, False, True)),
        ((1, 2, 9), 99, Landing(2, True, False)),
        ((1, 2, 3), 0, Landing(0, False, False)),
    ],
)
def test_a_chain_lands_up_to_the_first_id_that_differs(decided: tuple[int, ...], rows: int, landing: Landing) -> None:
    assert Drafts((1, 2, 3), CHANCES[:3]).landing(decided, rows) == landing


@pytest.mark.parametrize(
    ("decided", "rows", "landing"),
    [
        ((1, 2, 3), 5, Landing(3, False, True)),
        ((1, 4, 5, 6), 5, Landing(3, False, True)),
        ((1, 4, 6), 5, Landing(2, True, False)),
        ((1, 6), 5, Landing(1, True, False)),
        ((6, 1), 5, Landing(0, True, False)),
        ((1, 4), 5, Landing(2, False, False)),
        ((1, 4, 5), 4, Landing(2, False, False)),
        ((1, 4, 5), 3, Landing(1, True, False)),
    ],
)
def test_a_tree_lands_along_the_branch_that_was_right(decided: tuple[int, ...], rows: int, landing: Landing) -> None:
    drafts = Drafts((1, 2, 3, 4, 5), (0.9, 0.6, 0.5, 0.2, 0.1), (0, 1, 2, 1, 4))
    assert drafts.landing(decided, rows) == landing


def test_what_is_expected_is_the_sum_of_the_chances() -> None:
    assert Drafts((1, 2), (0.5, 0.25)).expected == 0.75


votes_strategy = st.lists(
    st.tuples(st.floats(0.1, 8.0), st.lists(st.integers(0, 2), min_size=1, max_size=8)).map(
        lambda pair: Vote(pair[0], tuple(pair[1]))
    ),
    min_size=1,
    max_size=6,
)
ladders = st.lists(st.floats(0.05, 1.0), min_size=1, max_size=8).map(lambda steps: tuple(_product(steps)))


def _product(steps: list[float]) -> list[float]:
    made, chance = [], 1.0
    for step in steps:
        chance *= step
        made.append(chance)
    return made


@settings(derandomize=True, deadline=None, max_examples=150)
@given(votes=votes_strategy, chances=ladders, rows=st.integers(1, 12), dominant=st.sampled_from([0.5, 0.9, 1.0]))
@pytest.mark.slow
def test_trees_are_sound_and_every_branch_is_some_places_text(
    votes: list[Vote], chances: tuple[float, ...], rows: int, dominant: float
) -> None:
    for drafts in (spread(votes, chances, rows, dominant), likeliest(votes, chances, rows)):
        proposal = Proposal("recall", *drafts[:3])
        assert sound(proposal, 3, rows) == proposal
        parents = drafts.parents or tuple(range(len(drafts.tokens)))
        paths: list[tuple[int, ...]] = [()]
        for token, parent in zip(drafts.tokens, parents, strict=True):
            paths.append((*paths[parent], token))
        assert len(set(paths)) == len(paths)
        assert all(any(vote.ids[: len(path)] == path for vote in votes) for path in paths)
        assert list(drafts.chances) == sorted(drafts.chances, reverse=True)
        for depth in range(1, len(chances) + 1):
            level = sum(c for c, path in zip(drafts.chances, paths[1:], strict=True) if len(path) == depth)
            assert level <= chances[depth - 1] * (1 + 1e-9)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(votes=votes_strategy, chances=ladders, dominant=st.sampled_from([0.5, 0.9, 1.0]))
@pytest.mark.slow
def test_narrow_trees_begin_wide_ones(votes: list[Vote], chances: tuple[float, ...], dominant: float) -> None:
    wide = spread(votes, chances, 100, dominant)
    for rows in range(1, len(wide.tokens)):
        narrow = spread(votes, chances, rows, dominant)
        assert narrow.tokens == wide.tokens[:rows]
        assert narrow.chances == wide.chances[:rows]
