"""Which blocks a row reads: the highest scores, ties to the lower block, of those that are complete where it stands."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.adapters.mlx.blocks import indexer
from tensorfold.adapters.mlx.reads import Reads, best_blocks
from tensorfold.domain.windows import Window, chain
from tensorfold.kernels.reference.attention import attend
from tensorfold.kernels.reference.block_indexer import best_blocks as reference_blocks
from tensorfold.kernels.reference.block_indexer import block_scores, chosen_keys
from tests.adapters.mlx.blocks.one_op import DEVICES, OneOp, some_tokens
from tests.adapters.mlx.tiny_families import TinyFamily


def marked(xp: Any, scores: Any, visible: Any, count: int) -> Any:
    return np.array(best_blocks(xp, xp.array(scores), np.asarray(visible), count))


@pytest.mark.parametrize("xp", (np, mx), ids=("numpy", "mlx"))
def test_the_highest_scores_win_and_ties_go_to_the_lower_block(xp: Any) -> None:
    scores = np.array([[0.0, 2.0, 0.0, 0.0, 1.0], [3.0, 3.0, 3.0, 3.0, 3.0], [-1.0, -2.0, 0.0, -0.0, 9.0]], np.float32)
    made = marked(xp, scores, [5, 5, 4], 3)
    assert [list(np.flatnonzero(row)) for row in made] == [[0, 1, 4], [0, 1, 2], [0, 2, 3]]


@pytest.mark.parametrize("xp", (np, mx), ids=("numpy", "mlx"))
def test_every_choice_is_the_stable_sort_s(xp: Any) -> None:
    generator = np.random.default_rng(1)
    for _ in range(20):
        blocks, rows = int(generator.integers(4, 90)), int(generator.integers(1, 9))
        count = int(generator.integers(1, 5))
        # Few distinct values, as when every head is negative: ties stand at the cut of nearly every row.
        scores = generator.integers(0, 4, (rows, blocks)).astype(np.float32) / 3
        visible = generator.integers(count, blocks + 1, rows)
        made = marked(xp, scores, visible, count)
        for row in range(rows):
            seen = reference_blocks(scores[row, : visible[row]].astype(np.float64), count)
            assert list(np.flatnonzero(made[row])) == seen


@pytest.mark.parametrize("xp", (np, mx), ids=("numpy", "mlx"))
def test_scores_that_are_no_numbers_choose_nothing_past_what_is_visible(xp: Any) -> None:
    scores = np.full((1, 6), np.nan, np.float32)
    assert not marked(xp, scores, [4], 2)[0, 4:].any()


@pytest.mark.parametrize("xp", (np, mx), ids=("numpy", "mlx"))
def test_scores_that_are_no_numbers_come_last_and_leave_no_row_without_its_blocks(xp: Any) -> None:
    nan, inf = np.nan, np.inf
    scores = np.array([[nan] * 6, [nan, 1, nan, 2, nan, nan], [-inf, nan, inf, nan, 0, 9]], np.float32)
    made = marked(xp, scores, [4, 5, 5], 3)
    assert [np.flatnonzero(row).tolist() for row in made] == [[0, 1, 2], [0, 1, 3], [0, 2, 4]]


@pytest.mark.parametrize("device", sorted(DEVICES))
@pytest.mark.parametrize(("ratio", "weighed"), ((4, False), (4, True), (1, False), (7, True)))
def test_scores_and_reads_are_the_reference_s_across_parts_and_blocks_of_keys(
    device: str, ratio: int, weighed: bool
) -> None:
    ops = DEVICES[device]()
    generator = np.random.default_rng(3)
    held, heads, groups, dim = 303, 4, 2, 16
    keys, values = generator.standard_normal((2, groups, held, dim)).astype(np.float32)
    pooled = generator.standard_normal((1, held // ratio, dim)).astype(np.float32)
    queries = generator.standard_normal((3, heads, dim)).astype(np.float32)
    weights = generator.standard_normal((3, heads)).astype(np.float32) if weighed else None
    positions = np.array([302, 290, 297])
    # A cut in the middle of a block of keys, as a tree of a lane has it.
    parts = [ops.float32(pooled[:, :30]), ops.float32(pooled[:, 30:])]
    device_weights = None if weights is None else ops.float32(weights)
    scores = ops.block_scores(ops.float32(queries), parts, device_weights)
    chosen = best_blocks(ops.xp, scores, (positions + 1) // ratio, 20)
    reads: Reads[Any] = Reads(positions, 0.25, ratio, 20, chosen)
    cut = [[ops.float32(part[:, :281]), ops.float32(part[:, 281:])] for part in (keys, values)]
    made = ops.host(ops.read(ops.float32(queries), cut[0], cut[1], reads))
    for row, position in enumerate(positions):
        visible = (position + 1) // ratio
        own = None if weights is None else weights[row].astype(np.float64)
        exact = block_scores(queries[row].astype(np.float64), pooled[0, :visible].astype(np.float64), 1.0, own)
        assert np.abs(ops.host(scores)[row, :visible] - exact).max() <= 1e-5 * np.abs(exact).max()
        seen = chosen_keys(reference_blocks(exact, 20), ratio, position + 1)
        wide = [part.astype(np.float64).transpose(1, 0, 2) for part in (keys, values)]
        expected = attend(queries[row : row + 1].astype(np.float64), wide[0], wide[1], [seen], 0.25)
        assert np.abs(made[row] - expected[0]).max() <= 1e-5
    ops.close()


@pytest.mark.parametrize("device", sorted(DEVICES))
@pytest.mark.parametrize(("family", "layer"), (("glm", 1), ("qwen", 3)))
def test_a_long_prompt_scored_in_several_goes_makes_the_same_rows(
    family: str, layer: int, device: str, request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = OneOp.of(request.getfixturevalue(family), DEVICES[device](), f"layers.{layer}.attention")
    rows, tokens = one.rows(1, 90), some_tokens(1, 90)
    window = chain(tokens[0], tokens[1:])
    whole = one.run(one.open(), rows, window)
    monkeypatch.setattr(indexer, "_MOST_PRODUCTS", 64)
    assert np.array_equal(one.run(one.open(), rows, window), whole)
    one.ops.close()


def test_a_row_inside_the_budget_reads_every_value_and_one_past_it_leaves_one_block_out(qwen: TinyFamily) -> None:
    one = OneOp.of(qwen, DEVICES["cpu"](), "layers.3.attention")
    ratio = one.op.indexer.ratio
    last = one.op.indexer.budget + ratio - 1  # tokens up to which nothing is left out
    rows, tokens = one.rows(2, last + 1), some_tokens(2, last + 1)
    for count, unread in ((last, 0), (last + 1, ratio)):
        window = chain(tokens[0], tokens[1:count])
        plain = last_result(one, rows[:count], window, None)
        changed = [last_result(one, rows[:count], window, token) for token in range(count - 1)]
        assert sum(np.array_equal(made, plain) for made in changed) == unread
    one.ops.close()


def last_result(one: OneOp, rows: Any, window: Window, token: int | None) -> Any:
    """What the last row reads when the cached value of one token is another, keys and choice being as they were."""
    state = one.open()
    put = state.parts[1].put

    def planted(values: Any, layout: Any) -> None:
        other = values.copy()
        if token is not None:
            other[token] *= -1.5
        put(other, layout)

    state.parts[1].put = planted
    return one.run(state, rows, window)[-1]
