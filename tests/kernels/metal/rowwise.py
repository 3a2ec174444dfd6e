"""Cases of kernels that make each row by itself: norms, gates, decays, routers, indexer scores, candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import mlx.core as mx
import numpy as np

from tensorfold.kernels.metal import decays, gates, indexer, norms, router, selection
from tensorfold.kernels.metal.activations import Activation
from tensorfold.kernels.reference.block_indexer import best_blocks, block_scores, chosen_keys
from tensorfold.kernels.reference.norm import rms_norm, unit_length
from tensorfold.kernels.reference.router import choose_experts
from tests.kernels.metal.case import Arrays, Floats, RowCase, values
from tests.kernels.metal.products import ROUNDING, device, random

FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "silu": lambda v: v / (1 + np.exp(-v)),
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "relu2": lambda v: np.maximum(v, 0) ** 2,
    "gelu_tanh": lambda v: 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))),
    "none": lambda v: v,
}


def softplus(v: Floats) -> Floats:
    """log(1 + exp(v))."""
    return np.logaddexp(0.0, v)


def norm_cases(dtype: mx.Dtype, rows: int, width: int, groups: int) -> Iterator[RowCase]:
    """All norms at one width; `width` is a row's."""
    x, other, gate = (device(random(seed, rows, width), dtype) for seed in (1, 2, 3))
    whole, part = device(random(4, width), dtype), device(random(5, width // groups), dtype)
    note = f"{dtype} {width} in {groups}".replace("mlx.core.", "")
    summed = values((x.astype(mx.float32) + other.astype(mx.float32)).astype(dtype))
    near = ROUNDING[dtype]
    kinds: tuple[tuple[Literal["silu", "sigmoid"], bool], ...] = (("silu", False), ("sigmoid", False), ("silu", True))

    def some(array: mx.array, chosen: list[int]) -> mx.array:
        return array[mx.array(chosen)]

    yield RowCase(
        f"rms_norm {note}",
        rows,
        lambda chosen: [
            norms.rms_norm(some(x, chosen), part, 1e-6, groups),
            norms.rms_norm(some(x, chosen), None, 1e-5),
        ],
        lambda: [rms_norm(values(x), np.tile(values(part), groups), 1e-6, groups), rms_norm(values(x), None, 1e-5)],
        near,
    )
    yield RowCase(
        f"l2_norm {note}",
        rows,
        lambda chosen: [norms.l2_norm(some(x, chosen), 1e-6, groups, 0.25)],
        lambda: [unit_length(values(x).reshape(rows, groups, -1), 1e-6).reshape(rows, -1) * 0.25],
        near,
    )
    yield RowCase(
        f"add_rms_norm {note}",
        rows,
        lambda chosen: norms.add_rms_norm(some(x, chosen), some(other, chosen), whole, 1e-6),
        lambda: [summed, rms_norm(summed, values(whole), 1e-6)],
        near,
    )
    for kind, first in kinds:

        def run(chosen: list[int], kind: Literal["silu", "sigmoid"] = kind, first: bool = first) -> Arrays:
            return [norms.gated_rms_norm(some(x, chosen), some(gate, chosen), whole, 1e-6, groups, kind, first)]

        def expected(kind: str = kind, first: bool = first) -> list[Floats]:
            opened = FUNCTIONS[kind](values(gate))
            before = values(x) * opened if first else values(x)
            normed = rms_norm(before, None, 1e-6, groups) * values(whole)
            return [normed if first else normed * opened]

        yield RowCase(f"gated_rms_norm {kind} {'gate first' if first else ''} {note}", rows, run, expected, near)


def gate_cases(dtype: mx.Dtype, rows: int, width: int = 70) -> Iterator[RowCase]:
    """Every activation, gated and plain, and the clamped form."""
    x, up = device(random(6, rows, width) * 6, dtype), device(random(7, rows, width) * 6, dtype)
    kinds: tuple[Activation, ...] = ("silu", "gelu_tanh", "sigmoid", "relu2")
    for kind in kinds:
        for limit in (0.0, 5.0) if kind == "silu" else (0.0,):

            def run(chosen: list[int], kind: Activation = kind, limit: float = limit) -> Arrays:
                some = mx.array(chosen)
                return [gates.gated(x[some], up[some], kind, limit), gates.activate(x[some], kind)]

            def expected(kind: str = kind, limit: float = limit) -> list[Floats]:
                opened, value = values(x), values(up)
                if limit:
                    opened, value = np.minimum(opened, limit), np.clip(value, -limit, limit)
                return [FUNCTIONS[kind](opened) * value, FUNCTIONS[kind](values(x))]

            name = f"gates {kind} limit {limit} {dtype}".replace("mlx.core.", "")
            yield RowCase(name, rows, run, expected, ROUNDING[dtype])


def decay_cases(rows: int) -> Iterator[RowCase]:
    """Decays of the three recurrent forms."""
    heads, channels = 6, 4
    a, wide = device(random(8, rows, heads)), device(random(9, rows, heads * channels))
    log, bias, wide_bias = device(random(10, heads)), device(random(11, heads)), device(random(12, heads * channels))

    def run(chosen: list[int]) -> Arrays:
        some = mx.array(chosen)
        return [
            decays.delta_decay(a[some], log, bias),
            decays.delta_decay(wide[some], log, wide_bias, -5.0),
            *decays.mamba_steps(a[some], log, bias),
            *decays.mamba_steps(a[some], log, bias, (0.3, 1.0)),
        ]

    def expected() -> list[Floats]:
        rate, moved = np.exp(values(log)), values(wide) + values(wide_bias)
        steps = softplus(values(a) + values(bias))
        clipped = np.clip(steps, 0.3, 1.0)
        bounded = np.exp(-5.0 * FUNCTIONS["sigmoid"](np.repeat(rate, channels) * moved))
        return [np.exp(-rate * steps), bounded, steps, np.exp(-rate * steps), clipped, np.exp(-rate * clipped)]

    yield RowCase("decays", rows, run, expected)


def router_case(rows: int, experts: int, slots: int, name: str, **settings: Any) -> RowCase:
    """One rule; logits repeat, so that ties must be broken by id."""
    logits = np.round(random(13, rows, experts) * 2) / 2
    held: dict[str, Any] = {
        key: device(value) if isinstance(value, np.ndarray) else value for key, value in settings.items()
    }

    def expected() -> list[Any]:
        rule = {key: value for key, value in settings.items() if key != "scoring"}
        made = [choose_experts(row, slots, settings["scoring"], **rule) for row in logits]
        return [np.array([one for one, _ in made], np.int32), np.array([shares for _, shares in made])]

    return RowCase(
        f"router {name}",
        rows,
        lambda chosen: router.route(device(logits)[mx.array(chosen)], slots, **held),
        expected,
    )


def router_cases(rows: int, experts: int = 40, slots: int = 6) -> Iterator[RowCase]:
    """Softmax, softmax over the chosen, sigmoid with a correction, and learnt scales."""
    correction, scales = np.round(random(14, experts) * 4) / 8, np.abs(random(15, experts))
    yield router_case(rows, experts, slots, "softmax", scoring="softmax")
    yield router_case(rows, experts, slots, "plain softmax", scoring="softmax", normalize=False, scale=1.5)
    yield router_case(rows, experts, slots, "over chosen", scoring="softmax", over_chosen=True, expert_scale=scales)
    yield router_case(rows, experts, slots, "sigmoid", scoring="sigmoid", correction=correction, scale=2.5)


def indexer_case(rows: int, weighted: bool) -> RowCase:
    """Scores and the positions read; rows see different numbers of tokens, and the budget is reached by some."""
    heads, dim, blocks, ratio, budget = 4, 16, 150, 4, 32
    queries, pooled = device(random(16, rows, heads, dim)), device(random(17, blocks, dim))
    weights = device(random(18, rows, heads)) if weighted else None
    visible = np.array([(37 * row + 5) % (blocks * ratio) + 1 for row in range(rows)], np.int32)

    def run(chosen: list[int]) -> Arrays:
        some = mx.array(chosen)
        own = None if weights is None else weights[some]
        scores = indexer.block_scores(queries[some], pooled, 0.25, own)
        return [scores, *indexer.chosen_positions(scores, mx.array(visible)[some], ratio, budget)]

    def expected() -> list[Any]:
        scores, lists = [], np.full((rows, budget + ratio - 1), -1, np.int32)
        lengths = np.zeros(rows, np.int32)
        for row in range(rows):
            own = None if weights is None else values(weights)[row]
            scores.append(block_scores(values(queries)[row], values(pooled), 0.25, own))
            kept = best_blocks(scores[-1][: visible[row] // ratio], budget // ratio)
            read = chosen_keys(kept, ratio, int(visible[row]))
            lists[row, : len(read)], lengths[row] = read, len(read)
        return [np.array(scores), lists, lengths]

    return RowCase(f"indexer {'weighted' if weighted else 'plain'}", rows, run, expected)


def candidate_case(rows: int, width: int, kept: int, dtype: mx.Dtype) -> RowCase:
    """Logits on a coarse grid: the cut falls among equals."""
    logits = device(np.round(random(19, rows, width) * 4) / 4, dtype)

    def expected() -> list[Any]:
        known = values(logits)
        ids = np.array([sorted(np.argsort(-row, kind="stable")[:kept]) for row in known], np.int32)
        return [ids, np.take_along_axis(known, ids, axis=1), np.log(np.exp(known).sum(axis=1))]

    name = f"candidates {kept} of {width} {dtype}".replace("mlx.core.", "")
    return RowCase(name, rows, lambda chosen: selection.candidates(logits[mx.array(chosen)], kept), expected)


def quick(rows: int = 17) -> Iterator[RowCase]:
    """One of each."""
    yield from norm_cases(mx.bfloat16, rows, 320, 2)
    yield from gate_cases(mx.bfloat16, rows)
    yield from decay_cases(rows)
    yield from router_cases(rows)
    yield indexer_case(rows, True)
    yield candidate_case(rows, 700, 28, mx.float32)


def wide(rows: int) -> Iterator[RowCase]:
    """Every dtype, and widths below a simdgroup and above a threadgroup."""
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        yield from norm_cases(dtype, rows, 48, 4)
        yield from gate_cases(dtype, rows)
    yield from norm_cases(mx.float32, rows, 5120, 1)
    yield from decay_cases(rows)
    yield from router_cases(rows, 288, 8)
    yield from router_cases(rows, 8, 8)
    yield indexer_case(rows, False)
    yield indexer_case(rows, True)
    yield candidate_case(rows, 2500, 1024, mx.float32)
    yield candidate_case(3, 9000, 28, mx.float32)
    yield candidate_case(rows, 300, 300, mx.bfloat16)
