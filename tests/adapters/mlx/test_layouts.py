"""Branches of a window: every row is computed once, on a path that leads through it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.adapters.mlx.layouts import chain_layout, lay_out
from tensorfold.domain.windows import Window, chain, tree


@st.composite
def windows(draw: st.DrawFn) -> Window:
    size = draw(st.integers(1, 24))
    parents = [draw(st.integers(0, row - 1)) for row in range(1, size)]
    return tree(0, list(range(1, size)), parents)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(windows(), st.integers(0, 1000))
@pytest.mark.slow
def test_every_row_belongs_to_one_branch_that_leads_through_it(window: Window, position: int) -> None:
    layout = lay_out(window, position)
    computed = [row for branch in layout.branches for row in branch.rows]
    assert sorted(computed) == list(range(len(window)))
    for branch in layout.branches:
        assert branch.path == window.path_to(branch.path[-1])
        assert list(branch.depths) == sorted(branch.depths)
    assert layout.positions.tolist() == [position + depth for depth in window.depths()]
    assert layout.is_chain == window.is_chain or len(layout.branches) == 1


def test_a_chain_is_one_branch() -> None:
    layout = lay_out(chain(1, [2, 3]), 7)
    other = chain_layout(7, 3)
    assert layout.branches == other.branches and layout.positions.tolist() == other.positions.tolist() == [7, 8, 9]
    assert layout.is_chain and len(layout) == 3
