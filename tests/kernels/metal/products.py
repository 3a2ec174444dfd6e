"""Cases of matrix products: affine and dense, both forms, and experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import mlx.core as mx
import numpy as np

from tensorfold.kernels.metal import affine, dense, experts
from tensorfold.kernels.reference.affine import dequantize, quantize
from tests.kernels.metal.case import Arrays, Floats, RowCase, values

ROUNDING = {mx.float32: 2e-5, mx.bfloat16: 2**-8, mx.float16: 2**-11}
Codes = tuple[mx.array, mx.array, mx.array]


def random(seed: int, *shape: int) -> Floats:
    """Normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape)


def device(array: Floats, dtype: mx.Dtype = mx.float32) -> mx.array:
    """An MLX array of these values, rounded to `dtype`."""
    return mx.array(array.astype(np.float32)).astype(dtype)


def codes(seed: int, shape: tuple[int, ...], bits: int, group: int, dtype: mx.Dtype) -> tuple[Codes, Floats]:
    """An affine matrix with scales in `dtype`, and its values."""
    words, scales, biases = quantize(random(seed, *shape) / np.sqrt(shape[-1]), bits, group)
    held = device(scales, dtype), device(biases, dtype)
    return (mx.array(words), *held), dequantize(words, values(held[0]), values(held[1]), bits, group)


def affine_case(
    form: str,
    bits: int,
    group: int,
    dtype: mx.Dtype = mx.float32,
    rows: int = 17,
    outputs: int = 21,
    inputs: int = 256,
    out: mx.Dtype | None = None,
) -> RowCase:
    """One form at one width."""
    x = device(random(bits, rows, inputs), dtype)
    matrix, weights = codes(group, (outputs, inputs), bits, group, dtype)
    run: Callable[..., mx.array] = {"scalar": affine.affine_scalar, "matrix": affine.affine_matrix}[form]
    return RowCase(
        f"affine_{form} {bits} bits, groups of {group}, {dtype}".replace("mlx.core.", ""),
        rows,
        lambda chosen: [run(x[mx.array(chosen)], *matrix, bits, group, out)],
        lambda: [values(x) @ weights.T],
        ROUNDING[out or dtype],
    )


def dense_case(form: str, dtype: mx.Dtype, rows: int = 17, outputs: int = 13, inputs: int = 150) -> RowCase:
    """One form of a dense product; 150 inputs end inside a block."""
    x, weights = device(random(1, rows, inputs), dtype), device(random(2, outputs, inputs) / np.sqrt(inputs), dtype)
    run: Callable[..., mx.array] = {"scalar": dense.dense_scalar, "matrix": dense.dense_matrix}[form]
    return RowCase(
        f"dense_{form} {dtype}".replace("mlx.core.", ""),
        rows,
        lambda chosen: [run(x[mx.array(chosen)], weights)],
        lambda: [values(x) @ values(weights).T],
        ROUNDING[dtype],
    )


def chosen_experts(rows: int, count: int, slots: int) -> mx.array:
    """Experts of each row, without repeats, crowded on the low ids."""
    drawn = np.random.default_rng(4)
    weights = 1.0 / np.arange(1, count + 1)
    picks = [drawn.choice(count, slots, replace=False, p=weights / weights.sum()) for _ in range(rows)]
    return mx.array(np.array(picks, np.int32))


def expert_case(stored: str, bits: int, group: int, dtype: mx.Dtype = mx.float32, rows: int = 17) -> RowCase:
    """Up, down and the sum over slots of a small mixture."""
    count, slots, width, hidden = 7, 3, 128, 64
    x, picks = device(random(5, rows, width), dtype), chosen_experts(rows, count, slots)
    shares, shared = mx.softmax(device(random(6, rows, slots)), axis=1), device(random(7, rows, width))
    if stored == "affine":
        up, up_values = codes(8, (count, hidden, width), bits, group, dtype)
        down, down_values = codes(9, (count, width, hidden), bits, min(group, hidden), dtype)
    else:
        raw = [device(random(8, count, hidden, width) / 11, dtype), device(random(9, count, width, hidden) / 8, dtype)]
        up_values, down_values = (values(one) for one in raw)

    def run(chosen: list[int]) -> Arrays:
        some = mx.array(chosen)
        order = experts.expert_order(picks[some])
        if stored == "affine":
            inner = experts.expert_affine(x[some], *up, bits, group, order, mx.float32)
            made = experts.expert_affine(inner, *down, bits, min(group, hidden), order, mx.float32)
        else:
            inner = experts.expert_dense(x[some], raw[0], order, mx.float32)
            made = experts.expert_dense(inner, raw[1], order, mx.float32)
        return [experts.combine(made, shares[some], shared[some], mx.float32)]

    def expected() -> list[Floats]:
        made = values(shared)
        for row in range(rows):
            for slot, expert in enumerate(np.array(picks)[row]):
                pushed = down_values[expert] @ (up_values[expert] @ values(x)[row])
                made[row] += values(shares)[row, slot] * pushed
        return [made]

    kind = f"affine {bits} bits" if stored == "affine" else "dense"
    return RowCase(f"experts {kind} {dtype}".replace("mlx.core.", ""), rows, run, expected, 2e-5)


def quick(rows: int = 17) -> Iterator[RowCase]:
    """One of each."""
    yield affine_case("scalar", 4, 64, mx.bfloat16, rows)
    yield affine_case("matrix", 4, 64, mx.bfloat16, rows)
    yield affine_case("scalar", 3, 32, rows=rows)
    yield dense_case("scalar", mx.bfloat16, rows)
    yield dense_case("matrix", mx.bfloat16, rows)
    yield expert_case("affine", 4, 32, rows=rows)
    yield expert_case("dense", 0, 0, rows=rows)


def wide(rows: int) -> Iterator[RowCase]:
    """Every width, group and dtype."""
    for form in ("scalar", "matrix"):
        for bits in affine.WIDTHS:
            for group in affine.GROUPS:
                yield affine_case(form, bits, group, rows=rows)
        for dtype in (mx.bfloat16, mx.float16):
            yield affine_case(form, 4, 64, dtype, rows, inputs=1280)
            yield affine_case(form, 8, 32, dtype, rows, outputs=1, inputs=512, out=mx.float32)
        for dtype in (mx.float32, mx.bfloat16, mx.float16):
            yield dense_case(form, dtype, rows)
            yield dense_case(form, dtype, rows, inputs=1024)
    for bits, group in ((2, 64), (3, 32), (4, 64), (5, 32), (6, 64), (8, 32)):
        yield expert_case("affine", bits, group, mx.bfloat16, rows)
    for dtype in (mx.float32, mx.bfloat16):
        yield expert_case("dense", 0, 0, dtype, rows)
