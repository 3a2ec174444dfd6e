"""Choosing among the proposals of one stream, and merging them into one tree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.arbitration import arbitrate, merge
from tensorfold.domain.drafting.sources import Proposal
from tensorfold.domain.windows import tree


def proposal(source: str, tokens: tuple[int, ...], *chances: float, parents: tuple[int, ...] | None = None) -> Proposal:
    return Proposal(source, tokens, chances, parents)


@st.composite
def proposals(draw: st.DrawFn) -> Proposal:
    """A proposal as sources make them: a tree or chain whose chances do not rise along a branch."""
    count = draw(st.integers(0, 7))
    is_chain = draw(st.booleans())
    parents = [row if is_chain else draw(st.integers(0, row)) for row in range(count)]
    above = [1.0]
    for parent in parents:
        above.append(above[parent] * draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])))
    tokens = tuple(draw(st.integers(0, 2)) for _ in range(count))
    source = draw(st.sampled_from(["copy", "head", "recall"]))
    return Proposal(source, tokens, tuple(above[1:]), None if is_chain else tuple(parents))


many = st.lists(proposals(), max_size=4)


def test_the_most_expected_drafts_win() -> None:
    head = proposal("head", (1, 2), 0.9, 0.8)
    assert arbitrate([proposal("copy", (1,), 0.99), head]) is head


def test_the_own_context_wins_ties_wherever_it_stands() -> None:
    own = proposal("copy", (1,), 0.5)
    assert arbitrate([proposal("recall", (2,), 0.5), own]) is own
    assert arbitrate([own, proposal("recall", (2,), 0.5)]) is own


def test_the_earlier_of_equal_proposals_wins() -> None:
    first, second = proposal("recall", (1,), 0.5), proposal("head", (2,), 0.5)
    assert arbitrate([first, second]) is first
    assert arbitrate([second, first]) is second


def test_without_proposals_there_is_no_choice() -> None:
    assert arbitrate([]) is None
    assert arbitrate([proposal("copy", ())]) is None


def test_a_proposal_without_hope_is_still_one() -> None:
    hopeless = proposal("head", (1,), 0.0)
    assert arbitrate([hopeless]) is hopeless


def test_chains_that_begin_alike_share_their_rows() -> None:
    merged = merge([proposal("copy", (1, 2, 3), 0.9, 0.5, 0.25), proposal("head", (1, 2, 4), 0.8, 0.6, 0.3)], 9)
    assert merged is not None
    assert merged.source == "copy+head"
    assert merged.tokens == (1, 2, 4, 3)
    assert merged.chances == pytest.approx((0.9, 0.6, 0.3, 0.25))
    assert merged.parents == (0, 1, 2, 2)


def test_branches_that_exclude_each_other_share_their_parents_chance() -> None:
    merged = merge([proposal("copy", (1, 5), 0.9, 0.9), proposal("head", (2,), 0.6)], 9)
    assert merged is not None
    assert merged.tokens == (1, 5, 2)
    assert merged.chances == pytest.approx((0.6, 0.6, 0.4))
    assert merged.parents == (0, 1, 0)


def test_a_merge_of_one_chain_is_that_chain() -> None:
    own = proposal("copy", (1, 2, 3), 0.9, 0.5, 0.25)
    assert merge([own], 9) == own
    assert merge([own, own], 9) == own
    assert merge([own, proposal("head", (1, 2), 0.2, 0.1)], 9) == Proposal("copy+head", own.tokens, own.chances)


def test_the_limit_takes_the_likeliest_and_names_only_their_sources() -> None:
    merged = merge([proposal("copy", (1, 2), 0.7, 0.6), proposal("head", (3,), 0.1)], 2)
    assert merged == proposal("copy", (1, 2), 0.7, 0.6)


def test_of_equally_likely_rows_the_earlier_proposals_come_first() -> None:
    merged = merge([proposal("copy", (1, 2), 0.4, 0.4), proposal("head", (3, 4), 0.4, 0.4)], 9)
    assert merged is not None
    assert merged.tokens == (1, 2, 3, 4)
    assert merged.parents == (0, 1, 0, 3)


def test_nothing_to_merge_gives_nothing() -> None:
    assert merge([], 5) is None
    assert merge([proposal("copy", ())], 5) is None
    assert merge([proposal("copy", (1,), 0.5)], 0) is None


def test_rows_without_any_chance_still_stand_in_order() -> None:
    merged = merge([proposal("copy", (1, 2), 0.0, 0.0)], 5)
    assert merged == proposal("copy", (1, 2), 0.0, 0.0)


def branches(offer: Proposal) -> set[tuple[int, ...]]:
    """The ids from the pending token to every row."""
    paths: list[tuple[int, ...]] = [()]
    for index, token in enumerate(offer.tokens):
        paths.append((*paths[index if offer.parents is None else offer.parents[index]], token))
    return set(paths[1:])


@settings(derandomize=True, deadline=None, max_examples=200)
@given(offers=many, limit=st.integers(0, 30))
@pytest.mark.slow
def test_a_merge_is_a_tree_of_what_was_proposed_without_repeats(offers: list[Proposal], limit: int) -> None:
    merged = merge(offers, limit)
    proposed: set[tuple[int, ...]] = set().union(*[branches(offer) for offer in offers])
    if merged is None:
        assert not proposed or limit == 0
        return
    assert len(merged) == min(limit, len(proposed))
    taken = branches(merged)
    assert len(taken) == len(merged)
    assert taken <= proposed
    parents = tuple(range(len(merged))) if merged.parents is None else merged.parents
    assert len(tree(0, merged.tokens, parents)) == len(merged) + 1
    assert set(merged.source.split("+")) <= {offer.source for offer in offers}


@settings(derandomize=True, deadline=None, max_examples=200)
@given(offers=many)
@pytest.mark.slow
def test_merged_chances_fall_from_row_to_row_and_siblings_share_their_parents(offers: list[Proposal]) -> None:
    merged = merge(offers, 99)
    if merged is None:
        return
    assert list(merged.chances) == sorted(merged.chances, reverse=True)
    parents = tuple(range(len(merged))) if merged.parents is None else merged.parents
    above = (1.0, *merged.chances)
    for row in range(len(merged) + 1):
        below = sum(chance for chance, parent in zip(merged.chances, parents, strict=True) if parent == row)
        assert below <= above[row] + 1e-12


@settings(derandomize=True, deadline=None, max_examples=100)
@given(offers=many, limit=st.integers(1, 12))
@pytest.mark.slow
def test_a_tighter_limit_takes_the_first_rows_of_the_wider_merge(offers: list[Proposal], limit: int) -> None:
    wide, tight = merge(offers, 99), merge(offers, limit)
    if wide is None or tight is None:
        assert wide is tight
        return
    assert tight.tokens == wide.tokens[:limit]
    assert tight.chances == wide.chances[:limit]
