"""What became of a proposal, told from the reply alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.landed import decided
from tensorfold.domain.drafting.sources import Proposal
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import tree


def proposal(tokens: tuple[int, ...], parents: tuple[int, ...] | None = None) -> Proposal:
    return Proposal("head", tokens, (0.5,) * len(tokens), parents)


def test_a_chain_lands_up_to_its_first_wrong_draft() -> None:
    outcome = decided(proposal((1, 2, 9, 4)), [1, 2, 3])
    assert (outcome.landed, outcome.kept, outcome.tried) == ((True, True, False, False), 2, 3)


def test_drafts_behind_the_reply_so_far_are_undecided() -> None:
    outcome = decided(proposal((1, 2, 3)), [1, 2])
    assert (outcome.landed, outcome.kept, outcome.tried) == ((True, True, None), 2, 2)
    outcome = decided(proposal((1, 2, 3)), [7])
    assert (outcome.landed, outcome.kept, outcome.tried) == ((False, False, False), 0, 1)
    assert decided(proposal((1,)), []).landed == (None,)


def test_a_branch_below_a_wrong_draft_is_wrong_and_one_below_a_right_leaf_undecided() -> None:
    outcome = decided(proposal((5, 1, 6, 2, 3), (0, 0, 1, 2, 4)), [1, 2])
    assert (outcome.landed, outcome.kept, outcome.tried) == ((False, True, False, True, None), 2, 2)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.data())
@pytest.mark.slow
def test_it_tells_of_a_verified_window_what_verification_told(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 12))
    tokens = tuple(data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    parents = tuple(data.draw(st.integers(0, row)) for row in range(count))
    draws = data.draw(st.lists(st.integers(0, 2), min_size=count + 1, max_size=count + 1))
    window = tree(9, tokens, parents)
    accepted = accept(window, draws, 99, frozenset())
    outcome = decided(proposal(tokens, parents), accepted.tokens)
    assert outcome.kept == len(accepted.path) - 1
    assert {row + 1 for row, landed in enumerate(outcome.landed) if landed} == set(accepted.path[1:])
    assert outcome.tried == outcome.kept + (accepted.path[-1] in parents)
