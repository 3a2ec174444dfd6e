"""Norms of rows, with what stands directly before or behind them: residual addition, gates.

One threadgroup makes one group of one row; how many threads it has depends on the group's width alone. Sums of squares
in float32: a chain for each thread, then a sum over each simdgroup, then those in order.
"""

from __future__ import annotations

from typing import Literal

import mlx.core as mx

from tensorfold.kernels.metal.activations import ACTIVATIONS, KINDS
from tensorfold.kernels.metal.launch import LANES, MetalKernel, parts

THREAD_VALUES = 4
MOST_THREADS = 1024


def _body(value: str, result: str, also: str = "") -> str:
    """A body where element `i` of the row has the float32 `value`, and `result` is made of `normed` and weight `w`."""
    return f"""
  threadgroup float shared[32];
  const int thread_index = int(thread_index_in_threadgroup), group = int(threadgroup_position_in_grid.x);
  const size_t start = (size_t(threadgroup_position_in_grid.y) * GROUPS + group) * WIDTH;
  float squares = 0.0f;
  for (int k = thread_index; k < WIDTH; k += THREADS) {{
    const size_t i = start + k;
    const float value = {value};
    {also}
    squares = fma(value, value, squares);
  }}
  squares = simd_sum(squares);
  if (thread_index_in_simdgroup == 0) shared[simdgroup_index_in_threadgroup] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = shared[0];
  for (int s = 1; s < THREADS / 32; s++) total = total + shared[s];
  const float scale = metal::precise::rsqrt((MEAN ? total / float(WIDTH) : total) + eps) * factor;
  for (int k = thread_index; k < WIDTH; k += THREADS) {{
    const size_t i = start + k;
    const float value = {value};
    const float w = WEIGHTED ? float(weight[WEIGHT_GROUPS == 1 ? k : group * WIDTH + k]) : 1.0f;
    const float normed = value * scale * w;
    y[i] = Out({result});
  }}
"""


NORM = MetalKernel("norm", ("x", "weight", "eps", "factor"), ("y",), _body("float(x[i])", "normed"))

# The sum is rounded to the rows' dtype first: the norm reads what the residual keeps.
ADD_NORM = MetalKernel(
    "add_norm",
    ("x", "residual", "weight", "eps", "factor"),
    ("h", "y"),
    _body("float(T(float(x[i]) + float(residual[i])))", "normed", "h[i] = T(value);"),
)

NORM_GATE = MetalKernel(
    "norm_gate",
    ("x", "gate", "weight", "eps", "factor"),
    ("y",),
    _body("float(x[i])", "normed * activated<KIND>(float(gate[i]))"),
    ACTIVATIONS,
)

GATE_NORM = MetalKernel(
    "gate_norm",
    ("x", "gate", "weight", "eps", "factor"),
    ("y",),
    _body("float(x[i]) * activated<KIND>(float(gate[i]))", "normed"),
    ACTIVATIONS,
)


def _launch(
    kernel: MetalKernel,
    arrays: list[mx.array],
    weight: mx.array | None,
    eps: float,
    factor: float,
    groups: int,
    out: mx.Dtype,
    **template: int | bool | mx.Dtype,
) -> list[mx.array]:
    x = arrays[0]
    rows, width = x.shape[0], x.size // x.shape[0] // groups
    threads = min(MOST_THREADS, LANES * parts(width, LANES * THREAD_VALUES))
    return kernel(
        [*arrays, x if weight is None else weight, mx.array(eps, mx.float32), mx.array(factor, mx.float32)],
        grid=(threads * groups, rows, 1),
        threadgroup=(threads, 1, 1),
        shapes=[tuple(x.shape)] * len(kernel.outputs),
        dtypes=[*[x.dtype] * (len(kernel.outputs) - 1), out],
        Out=out,
        WIDTH=width,
        GROUPS=groups,
        THREADS=threads,
        WEIGHTED=weight is not None,
        WEIGHT_GROUPS=1 if weight is None or weight.size == width else groups,
        **template,
    )


def rms_norm(
    x: mx.array, weight: mx.array | None, eps: float, groups: int = 1, factor: float = 1.0, out: mx.Dtype | None = None
) -> mx.array:
    """x / sqrt(mean of squares + eps) * factor * weight over each of `groups` equal parts of a row; shape of `x`.

    `x` [R, ...]; `weight` [width], shared by the groups, or [groups * width], or None. Heads are groups.
    """
    return _launch(NORM, [x], weight, eps, factor, groups, out or x.dtype, MEAN=True)[0]


def l2_norm(x: mx.array, eps: float, groups: int, factor: float = 1.0, out: mx.Dtype | None = None) -> mx.array:
    """x / sqrt(sum of squares + eps) * factor over each of `groups` equal parts of a row."""
    return _launch(NORM, [x], None, eps, factor, groups, out or x.dtype, MEAN=False)[0]


def add_rms_norm(
    x: mx.array, residual: mx.array, weight: mx.array | None, eps: float, groups: int = 1
) -> tuple[mx.array, mx.array]:
    """h = x + residual, rounded to the dtype of `x`, and the norm of h."""
    h, y = _launch(ADD_NORM, [x, residual], weight, eps, 1.0, groups, x.dtype, MEAN=True, T=x.dtype)
    return h, y


def gated_rms_norm(
    x: mx.array,
    gate: mx.array,
    weight: mx.array | None,
    eps: float,
    groups: int,
    activation: Literal["silu", "sigmoid"] = "silu",
    gate_first: bool = False,
    out: mx.Dtype | None = None,
) -> mx.array:
    """norm(x) * activation(gate), or norm(x * activation(gate)) with `gate_first`; in the dtype of `gate` or `out`.

    A delta net gates behind the norm of each head, Mamba-2 before the norm of each group.
    """
    kernel = GATE_NORM if gate_first else NORM_GATE
    made = _launch(kernel, [x, gate], weight, eps, 1.0, groups, out or gate.dtype, MEAN=True, KIND=KINDS[activation])
    return made[0]
