"""Cases of kernels whose rows follow one another: attention, recurrent steps, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.kernels.metal.attention import attend
from tensorfold.kernels.metal.conv import kept_tail, short_conv
from tensorfold.kernels.metal.recurrence import delta_steps, mamba_scan
from tensorfold.kernels.metal.windows import window
from tensorfold.kernels.reference.attention import attend as attend_exactly
from tensorfold.kernels.reference.delta_rule import delta_step
from tests.kernels.metal.case import Arrays, Floats, WindowCase, values
from tests.kernels.metal.products import ROUNDING, device, random


def attention_case(
    name: str,
    committed: int,
    heads: int = 4,
    groups: int = 2,
    dim: int = 64,
    sliding: int = 0,
    softcap: float = 0.0,
    selected: int = 0,
    ring: int = 0,
    dtype: mx.Dtype = mx.float32,
    rows: int = 8,
) -> WindowCase:
    """`ring` n > 0: the cache has n rows. `selected` n > 0: rows read two of three positions up to n, then all."""
    q, k, v = (device(random(seed, rows, h, dim), dtype) for seed, h in ((1, heads), (2, groups), (3, groups)))
    held = [device(random(seed, committed, groups, dim), dtype) for seed in (4, 5)]
    scale = dim**-0.5

    def reads(position: int) -> list[int]:
        if selected:
            return [p for p in range(position + 1) if p >= selected or p % 3 < 2]
        return list(range(max(0, position + 1 - sliding) if sliding else 0, position + 1))

    def step(state: Any, chosen: list[int], parents: list[int]) -> tuple[Arrays, Callable[[list[int]], Any]]:
        keys, cached = state
        some, rows_of = mx.array(chosen), window(parents)
        lists = counts = None
        if selected:
            listed = [reads(keys.shape[0] + int(depth)) for depth in np.array(rows_of.depths)[: len(chosen)]]
            longest = max(len(one) for one in listed)
            lists = mx.array(np.array([one + [-1] * (longest - len(one)) for one in listed], np.int32))
            counts = mx.array(np.array([len(one) for one in listed], np.int32))
        # Rows of the cache past the committed ones hold no numbers: they may not be read.
        spare = mx.full((5, groups, dim), float("nan"), dtype)
        full = [mx.concatenate([keys, spare]), mx.concatenate([cached, spare])]
        if ring:
            newest = mx.array([max(p for p in range(keys.shape[0]) if p % ring == row) for row in range(ring)])
            full = [keys[newest], cached[newest]]
        before, own = keys.shape[0], (k[some], v[some])
        made = attend(
            q[some], full[0], full[1], own[0], own[1], rows_of, before, scale, sliding, softcap, lists, counts
        )

        def keep(path: list[int]) -> Any:
            kept = mx.array([chosen[row] for row in path])
            return mx.concatenate([keys, k[kept]]), mx.concatenate([cached, v[kept]])

        return [made], keep

    def expected(path: list[int]) -> list[Floats]:
        keys, cached = (np.concatenate([values(old), values(new)[path]]) for old, new in zip(held, (k, v), strict=True))
        query = values(q)[path[-1] : path[-1] + 1]
        return [attend_exactly(query, keys, cached, [reads(len(keys) - 1)], scale, softcap)[0]]

    return WindowCase(f"attention {name}", rows, lambda: tuple(held), step, expected, 4 * ROUNDING[dtype])


def delta_case(by_channel: bool, rows: int = 8, key_heads: int = 2, heads: int = 4, dim: int = 16) -> WindowCase:
    """Gated delta, or Kimi delta when decays differ by channel (one key head for each value head there)."""
    key_heads, wide = (heads, (heads, dim)) if by_channel else (key_heads, (heads,))
    q, k = (device(random(seed, rows, key_heads, dim) / np.sqrt(dim)) for seed in (1, 2))
    v = device(random(3, rows, heads, 2 * dim))
    log_decay = device(-np.abs(random(4, rows, *wide)))
    strength = mx.sigmoid(device(random(5, rows, heads)))
    decay, first = mx.exp(log_decay), device(random(6, heads, dim, 2 * dim))

    def step(state: Any, chosen: list[int], parents: list[int]) -> tuple[Arrays, Callable[[list[int]], Any]]:
        def launch(picked: list[int], over: list[int], history: bool) -> tuple[mx.array, mx.array]:
            some = mx.array(picked)
            return delta_steps(
                q[some], k[some], v[some], decay[some], strength[some], state, window(over), history, mx.float32
            )

        made, states = launch(chosen, parents, True)

        def keep(path: list[int]) -> Any:
            replayed = launch([chosen[row] for row in path], list(range(-1, len(path) - 1)), False)[1]
            assert np.array_equal(np.array(replayed), np.array(states[path[-1]])), "a replay differs from the history"
            return replayed

        return [made], keep

    def expected(path: list[int]) -> list[Floats]:
        state, result = values(first), np.zeros(0)
        for row in path:
            queries, keys = (np.repeat(values(one)[row], heads // key_heads, axis=0) for one in (q, k))
            # The oracle is given the logarithm of the decay that the kernel was given.
            log = np.log(values(decay)[row])
            result, state = delta_step(state, queries, keys, values(v)[row], log, values(strength)[row])
        return [result]

    name = "kimi delta" if by_channel else "gated delta"
    return WindowCase(f"{name} {heads}x{dim}x{2 * dim}", rows, lambda: first, step, expected)


def mamba_case(rows: int = 8, heads: int = 4, dim: int = 16, groups: int = 2, size: int = 32) -> WindowCase:
    """Mamba-2 with shared B and C."""
    x, b, c = device(random(1, rows, heads, dim)), *(device(random(s, rows, groups, size)) for s in (2, 3))
    steps = mx.abs(device(random(4, rows, heads)))
    decay, skip, first = mx.exp(-steps), device(random(5, heads)), device(random(6, heads, dim, size))

    def step(state: Any, chosen: list[int], parents: list[int]) -> tuple[Arrays, Callable[[list[int]], Any]]:
        some = mx.array(chosen)
        held = (x[some], b[some], c[some], steps[some], decay[some], skip)
        made, states = mamba_scan(*held, state, window(parents), True)
        return [made], lambda path: states[path[-1]]

    def expected(path: list[int]) -> list[Floats]:
        state, result = values(first), np.zeros((heads, dim))
        for row in path:
            for head in range(heads):
                shared, value = head // (heads // groups), values(x)[row, head]
                written = np.outer(values(steps)[row, head] * value, values(b)[row, shared])
                state[head] = values(decay)[row, head] * state[head] + written
                result[head] = state[head] @ values(c)[row, shared] + values(skip)[head] * value
        return [result]

    return WindowCase(f"mamba {heads}x{dim}x{size}", rows, lambda: first, step, expected)


def conv_case(taps: int, dilation: int, biased: bool, rows: int = 8, channels: int = 40) -> WindowCase:
    """A convolution with its tail."""
    x, weight = device(random(1, rows, channels)), device(random(2, channels, taps))
    bias, first = device(random(3, channels)), device(random(4, (taps - 1) * dilation, channels))

    def step(state: Any, chosen: list[int], parents: list[int]) -> tuple[Arrays, Callable[[list[int]], Any]]:
        rows_of, own = x[mx.array(chosen)], bias if biased else None
        made = short_conv(rows_of, state, weight, window(parents), own, "silu", dilation)
        return [made], lambda path: kept_tail(state, rows_of, path)

    def expected(path: list[int]) -> list[Floats]:
        inputs = np.concatenate([values(first), values(x)[path]])[::-1][::dilation][:taps][::-1]
        total = (inputs * values(weight).T).sum(axis=0) + (values(bias) if biased else 0.0)
        return [total / (1 + np.exp(-total))]

    return WindowCase(f"conv {taps} taps {dilation} apart", rows, lambda: first, step, expected)


def quick() -> Iterator[WindowCase]:
    """One of each; attention across the edges of a block and of a chunk."""
    yield attention_case("across a block's edge", 61)
    yield attention_case("across a chunk's edge, sliding", 509, sliding=70, softcap=20.0, dtype=mx.bfloat16, rows=7)
    yield attention_case("over chosen keys", 100, selected=90)
    yield attention_case("over a ring", 140, sliding=70, ring=75)
    yield delta_case(False)
    yield delta_case(True)
    yield mamba_case()
    yield conv_case(4, 1, False)
    yield conv_case(3, 3, True)


def wide() -> Iterator[WindowCase]:
    """Head sizes, group shares, dtypes, and every count of keys around each edge."""
    for committed in (0, 1, 30, 62, 63, 64, 65, 126, 128, 510, 511, 512, 1023):
        yield attention_case(f"of {committed} keys", committed, rows=8)
    for dim, heads, groups in ((64, 6, 1), (128, 8, 2), (256, 6, 1), (512, 4, 1)):
        for dtype in (mx.float32, mx.bfloat16, mx.float16):
            yield attention_case(f"heads of {dim} {dtype}", 70, heads, groups, dim, dtype=dtype)
    for sliding in (1, 8, 64, 512):
        yield attention_case(f"sliding over {sliding}", 600, sliding=sliding)
    yield attention_case("capped", 64, softcap=5.0)
    for committed in (62, 509, 600):
        yield attention_case(f"over chosen of {committed}", committed, selected=committed - 20)
    for by_channel in (False, True):
        for dim in (16, 64, 128):
            yield delta_case(by_channel, dim=dim)
    yield mamba_case(dim=64, size=128)
    for taps, dilation, biased in ((2, 1, False), (4, 1, True), (4, 3, False)):
        yield conv_case(taps, dilation, biased)
