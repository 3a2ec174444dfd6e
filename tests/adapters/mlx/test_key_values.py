"""State of one attention layer: bounded by its window, zero behind its length, whole through export and fork."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.adapters.mlx.blocks.key_values_cpu import CpuKeyValues
from tensorfold.adapters.mlx.layouts import chain_layout
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.domain.families.ops import Attention

WINDOW = 50
PLAN = Attention(heads=4, kv_heads=2, head_dim=16, scale=0.25)
SLIDING = Attention(heads=4, kv_heads=2, head_dim=16, scale=0.25, window=WINDOW)
ARITHMETICS: dict[str, RowOps[Any]] = {
    "rows": CpuRows(),
    "f32": LibraryRows("float32"),
    "bf16": LibraryRows("bfloat16"),
}


def feed(ops: Any, state: Any, count: int, seed: int, kept: int | None = None) -> None:
    """One window of random rows, of which the first `kept` stay."""
    generator = np.random.default_rng(seed)
    queries, keys, values = (
        ops.constant(generator.standard_normal((count, heads, 16)).astype(np.float32)) for heads in (4, 2, 2)
    )
    made = state.attend(queries, keys, values, chain_layout(state.length, count))
    assert ops.host(made).shape == (count, 64)
    state.keep(tuple(range(count if kept is None else kept)))


@pytest.mark.parametrize("name", sorted(ARITHMETICS))
@pytest.mark.slow
def test_a_sliding_window_bounds_the_bytes_held(name: str) -> None:
    ops = ARITHMETICS[name]
    state = ops.key_values(SLIDING, 100_000)
    most = 0
    for seed in range(200):
        feed(ops, state, 16, seed)
        most = max(most, state.held_bytes())
    assert state.length == 3200
    # The window, a widest launch and two blocks or steps to grow in: no more, however long the reply.
    assert most <= 2 * 2 * 16 * 4 * (WINDOW + 16 + 2 * 256)


@pytest.mark.parametrize("name", sorted(ARITHMETICS))
def test_full_attention_grows_with_its_tokens_and_not_before(name: str) -> None:
    ops = ARITHMETICS[name]
    state = ops.key_values(PLAN, 4096)
    before = state.held_bytes()
    for seed in range(16):
        feed(ops, state, 16, seed)
    assert state.held_bytes() == before
    for seed in range(48):
        feed(ops, state, 16, seed)
    assert before < state.held_bytes() <= 4 * before


@pytest.mark.parametrize("plan", (PLAN, SLIDING), ids=("full", "sliding"))
@pytest.mark.parametrize("name", sorted(ARITHMETICS))
def test_an_exported_layer_loads_into_an_equal_one(name: str, plan: Attention) -> None:
    ops = ARITHMETICS[name]
    for windows in (0, 1, 3, 9):
        state: Any = ops.key_values(plan, 512)
        for seed in range(windows):
            feed(ops, state, 13, seed)
        keys, values = state.export()
        other: Any = ops.key_values(plan, 512)
        other.load((keys, values), state.length)
        assert other.export() == (keys, values) and other.length == state.length
        for seed in range(40, 46):
            feed(ops, state, 16, seed, kept=11)
            feed(ops, other, 16, seed, kept=11)
            assert state.export() == other.export()
        with pytest.raises(ValueError, match="bytes"):
            ops.key_values(plan, 512).load((keys + b"\0\0", values), state.length)


@pytest.mark.parametrize("name", sorted(ARITHMETICS))
def test_a_fork_and_its_original_do_not_see_each_other(name: str) -> None:
    ops = ARITHMETICS[name]
    state: Any = ops.key_values(SLIDING, 512)
    feed(ops, state, 16, 1)
    twin = state.fork()
    before = twin.export()
    feed(ops, state, 16, 2)
    assert twin.export() == before
    feed(ops, twin, 16, 2)
    assert twin.export() == state.export()


def test_nothing_an_abandoned_window_wrote_is_left_behind() -> None:
    ops = ARITHMETICS["rows"]
    state = ops.key_values(SLIDING, 4096)
    assert isinstance(state, CpuKeyValues)
    generator = np.random.default_rng(3)
    for turn in range(60):
        feed(ops, state, 16, turn, kept=int(generator.integers(0, 17)))
        at = state.length - state._first
        assert not state._keys[:, at:].any() and not state._values[:, at:].any()
        rows = [generator.standard_normal((5, heads, 16)).astype(np.float32) for heads in (4, 2, 2)]
        state.attend(rows[0], rows[1], rows[2], chain_layout(state.length, 5))
        state.discard()
        at = state.length - state._first
        assert not state._keys[:, at:].any()


@pytest.mark.slow
def test_which_keys_a_kernel_gets_hangs_on_the_lane_s_length_and_not_on_its_past(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ops, given = ARITHMETICS["bf16"], list[tuple[int, ...]]()
    attention = mx.fast.scaled_dot_product_attention

    def watched(queries: mx.array, keys: mx.array, *args: Any, **named: Any) -> mx.array:
        given.append(tuple(keys.shape))
        return attention(queries, keys, *args, **named)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", watched)
    wide, narrow = ops.key_values(SLIDING, 4096), ops.key_values(SLIDING, 4096)
    for turn in range(40):
        feed(ops, wide, 16, turn)
        for _ in range(16):
            feed(ops, narrow, 1, turn)
        restored = ops.key_values(SLIDING, 4096)
        restored.load(wide.export(), wide.length)
        given.clear()
        for state in (wide.fork(), narrow.fork(), restored):
            feed(ops, state, 2, turn)
        assert len(set(given)) == 1
