"""Windows: chains and trees of rows."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.windows import Window, chain, tree


def test_a_lone_pending_token_is_a_chain_of_one_row() -> None:
    window = chain(7)
    assert (window.tokens, window.parents, window.forced) == ((7,), (-1,), 0)
    assert len(window) == 1
    assert window.is_chain
    assert window.depths() == (0,)
    assert window.path_to(0) == (0,)


def test_a_chain_holds_the_pending_token_then_forced_tokens_then_drafts() -> None:
    window = chain(1, drafts=[4, 5], forced=[2, 3])
    assert window.tokens == (1, 2, 3, 4, 5)
    assert window.parents == (-1, 0, 1, 2, 3)
    assert window.forced == 2
    assert window.depths() == (0, 1, 2, 3, 4)
    assert window.path_to(3) == (0, 1, 2, 3)


@pytest.mark.parametrize("width", [1, 2, 63, 64, 65, 66, 200])
def test_a_chain_of_any_width_follows_row_by_row(width: int) -> None:
    window = chain(0, range(1, width))
    assert window.parents == (-1, *range(width - 1))
    assert window.is_chain


def test_siblings_of_a_tree_share_a_depth() -> None:
    window = tree(9, drafts=[1, 2, 3, 4, 5], parents=[0, 0, 1, 1, 3])
    assert window.parents == (-1, 0, 0, 1, 1, 3)
    assert not window.is_chain
    assert window.depths() == (0, 1, 1, 2, 2, 3)
    assert window.path_to(5) == (0, 1, 3, 5)
    assert window.path_to(2) == (0, 2)


def test_a_tree_of_one_branch_is_a_chain() -> None:
    assert tree(9, [1, 2], [0, 1]).is_chain
    assert tree(9, [1, 2], [0, 1]) == chain(9, [1, 2])


@pytest.mark.parametrize(("parents", "row"), [([0, 2], 2), ([1, 0], 1), ([0, -1], 2)])
def test_a_draft_cannot_stand_before_the_row_it_follows(parents: list[int], row: int) -> None:
    with pytest.raises(ValueError, match=f"draft row {row} follows"):
        tree(0, [1, 2], parents)


def test_every_draft_of_a_tree_needs_a_parent() -> None:
    with pytest.raises(ValueError, match="2 drafts came with 1 parents"):
        tree(0, [1, 2], [0])


def test_a_truncated_window_keeps_its_first_rows() -> None:
    window = tree(9, [1, 2, 3], [0, 0, 1])
    assert window.truncated(3) == tree(9, [1, 2], [0, 0])
    assert window.truncated(4) is window
    assert window.truncated(99) is window
    assert window.truncated(0) == chain(9)


def test_truncation_never_drops_a_forced_row() -> None:
    assert chain(1, [4, 5], forced=[2, 3]).truncated(1) == chain(1, forced=[2, 3])
    assert chain(1, [4, 5], forced=[2, 3]).truncated(4) == chain(1, [4], forced=[2, 3])


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.data())
def test_paths_and_depths_agree_in_any_tree(data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 12))
    parents = [data.draw(st.integers(0, row)) for row in range(size)]
    window = tree(0, range(size), parents)
    for row, depth in enumerate(window.depths()):
        path = window.path_to(row)
        assert len(path) == depth + 1
        assert path[0] == 0
        assert path[-1] == row
        assert all(window.parents[child] == parent for parent, child in pairwise(path))


def test_windows_with_equal_rows_are_equal() -> None:
    assert Window((1, 2), (-1, 0)) == chain(1, [2])
    assert Window((1, 2), (-1, 0), 1) != chain(1, [2])
