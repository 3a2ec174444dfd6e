"""Steps of trees: every row from its parent's state, in few steps."""

from __future__ import annotations

import random

import pytest

from tensorfold.adapters.cuda.rows import RESET, RETURN, SAVE
from tensorfold.adapters.cuda.tree_steps import tree_steps


def followed(parents: list[int]) -> list[int]:
    """Run the steps on states that are paths; the rows in the order in which they got their results."""
    committed: tuple[int, ...] = ()
    now, aside, made = committed, None, []
    for row, new, flags in tree_steps(parents):
        if flags & RESET:
            now = committed
        if flags & RETURN:
            assert aside is not None
            now = aside
        now = (*now, row)
        way: list[int] = []
        at = row
        while at >= 0:
            way.insert(0, at)
            at = parents[at]
        assert list(now) == way
        if flags & SAVE:
            aside = now
        if new:
            made.append(row)
    return made


@pytest.mark.parametrize("seed", range(200))
def test_every_row_gets_its_result_once_from_its_own_way_down(seed: int) -> None:
    chance = random.Random(seed)
    parents = [-1, *(chance.randrange(max(0, row - chance.choice([1, 3, 16])), row) for row in range(1, 16))]
    assert sorted(followed(parents)) == list(range(16))
    plain = 16 + sum(depth(parents, row) for row in range(1, 16)) - sum(p == row - 1 for row, p in enumerate(parents))
    assert len(tree_steps(parents)) <= max(plain, 16)


def depth(parents: list[int], row: int) -> int:
    """Rows above a row."""
    return 0 if row == 0 else 1 + depth(parents, parents[row])


def test_a_chain_with_leaves_beside_it_makes_each_state_once() -> None:
    # 0 - 2 - 4 - 6, with 1, 3 and 5 beside 2, 4 and 6.
    parents = [-1, 0, 0, 2, 2, 4, 4]
    assert tree_steps(parents) == [
        (0, True, SAVE), (1, True, 0), (2, True, RETURN | SAVE), (3, True, 0), (4, True, RETURN | SAVE), (5, True, 0),
        (6, True, RETURN),
    ]  # fmt: skip


def test_a_branch_inside_a_branch_runs_the_way_down_again() -> None:
    # 1 and 4 below 0; 2 and 3 below 1; 5, 6 and 7 below 4 one after another.
    steps = tree_steps([-1, 0, 1, 1, 0, 4, 5, 6])
    assert steps == [
        (0, True, SAVE), (1, True, SAVE), (2, True, 0), (3, True, RETURN), (0, False, RESET), (4, True, 0),
        (5, True, 0), (6, True, 0), (7, True, 0),
    ]  # fmt: skip


def test_one_row_is_one_step() -> None:
    assert tree_steps([-1]) == [(0, True, 0)]
