"""Proposals, and what is left of one that came back broken."""

from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.sources import Proposal, sound, took_part
from tensorfold.domain.windows import chain, tree

TREE = Proposal("head", (1, 2, 3), (0.9, 0.5, 0.3), (0, 0, 1))
numbers = st.floats(allow_nan=True, allow_infinity=True)


def test_the_first_drafts_of_a_proposal_are_a_proposal() -> None:
    assert TREE.first(2) == Proposal("head", (1, 2), (0.9, 0.5), (0, 0))
    assert Proposal("copy", (1, 2), (0.9, 0.5)).first(1) == Proposal("copy", (1,), (0.9,))
    assert TREE.first(3) is TREE
    assert len(TREE.first(0)) == 0


def test_expected_drafts_are_the_sum_of_the_chances() -> None:
    assert TREE.expected == pytest.approx(1.7)


def test_a_source_takes_part_in_what_is_merged_from_it() -> None:
    assert took_part("copy", "copy")
    assert took_part("head", "copy+head")
    assert not took_part("copy", "copycat")
    assert not took_part("copy", None)


def test_a_sound_proposal_passes_untouched() -> None:
    offer = Proposal("copy", (0, 9), (1.0, 0.0))
    assert sound(offer, 10, 2) is offer


def test_ids_outside_the_vocabulary_end_a_proposal() -> None:
    assert sound(Proposal("x", (1, 10, 2), (0.9, 0.8, 0.7)), 10, 9) == Proposal("x", (1,), (0.9,))
    assert sound(Proposal("x", (1, 2, -1), (0.9, 0.8, 0.7)), 10, 9) == Proposal("x", (1, 2), (0.9, 0.8))
    assert sound(Proposal("x", (10,), (0.9,)), 10, 9) is None


def test_the_limit_ends_a_proposal() -> None:
    assert sound(Proposal("x", (1, 2, 3), (0.9, 0.8, 0.7)), 10, 2) == Proposal("x", (1, 2), (0.9, 0.8))
    assert sound(Proposal("x", (1, 2), (0.9, 0.8)), 10, 0) is None
    assert sound(Proposal("x", (1, 2), (0.9, 0.8)), 10, -3) is None
    assert sound(Proposal("x", (), ()), 10, 3) is None


def test_chances_become_probabilities() -> None:
    offer = Proposal("x", (1, 2, 3, 4, 5), (nan, 2.0, -1.0, inf, 0.5))
    assert sound(offer, 10, 9) == Proposal("x", (1, 2, 3, 4, 5), (0.0, 1.0, 0.0, 1.0, 0.5))
    assert sound(Proposal("x", (1, 2), (0.5, nan)), 10, 9) == Proposal("x", (1, 2), (0.5, 0.0))
    assert sound(Proposal("x", (1, 2), (0.5, 1.5)), 10, 9) == Proposal("x", (1, 2), (0.5, 1.0))
    assert sound(Proposal("x", (1, 2), (0.5, -0.25)), 10, 9) == Proposal("x", (1, 2), (0.5, 0.0))


def test_a_row_without_a_chance_ends_a_proposal() -> None:
    assert sound(Proposal("x", (1, 2), (0.5,)), 10, 9) == Proposal("x", (1,), (0.5,))


def test_a_row_that_stands_before_its_parent_ends_a_tree() -> None:
    assert sound(TREE, 10, 9) == TREE
    assert sound(Proposal("x", (1, 2, 3), (0.5,) * 3, (0, 2, 0)), 10, 9) == Proposal("x", (1,), (0.5,), (0,))
    assert sound(Proposal("x", (1, 2, 3), (0.5,) * 3, (0, -1, 0)), 10, 9) == Proposal("x", (1,), (0.5,), (0,))
    assert sound(Proposal("x", (1, 2), (0.5,) * 2, (0,)), 10, 9) == Proposal("x", (1,), (0.5,), (0,))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    tokens=st.lists(st.integers(-2, 12), max_size=8),
    chances=st.lists(numbers, max_size=9),
    parents=st.none() | st.lists(st.integers(-2, 9), max_size=9),
    limit=st.integers(-1, 9),
)
@pytest.mark.slow
def test_whatever_comes_back_can_be_run(
    tokens: list[int], chances: list[float], parents: list[int] | None, limit: int
) -> None:
    offer = Proposal("x", tuple(tokens), tuple(chances), None if parents is None else tuple(parents))
    left = sound(offer, 10, limit)
    if left is None:
        return
    assert 1 <= len(left) <= limit
    assert left.tokens == offer.tokens[: len(left)]
    assert len(left.chances) == len(left)
    assert all(0 <= token < 10 for token in left.tokens)
    assert all(0.0 <= chance <= 1.0 for chance in left.chances)
    window = chain(1, left.tokens) if left.parents is None else tree(1, left.tokens, left.parents)
    assert len(window) == len(left) + 1
