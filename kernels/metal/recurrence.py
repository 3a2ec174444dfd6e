"""Gated delta, Kimi delta and Mamba-2 over the rows of a window: one step after another, state in float32.

Each row starts from its parent's state. With history the state after every row is kept, so that a tree can branch and
any row can be kept; without it the window must be a chain and only the last state comes back: that replays kept rows
from the committed state by the very same steps. A thread reads back only what it wrote itself, so no barrier is needed.

One simdgroup holds a strip of one head's state, eight columns across and the summed axis cut in four:

    lane          0  1 .. 7   8 .. 15   16 .. 23   24 .. 31
    delta column  0  1 .. 7   0 ..  7    0 ..  7    0 ..  7
    key dims      0, 4, 8 ..  1, 5 ..    2, 6 ..    3, 7 ..     four sums, added as (0 + 1) + (2 + 3)

Mamba-2 sums over the state's last axis, so there a lane's slice is lane % 4 and its row of the strip lane / 4.
"""

from __future__ import annotations

import mlx.core as mx

from tensorfold.kernels.metal.launch import LANES, MetalKernel
from tensorfold.kernels.metal.windows import Window

STRIP = 8
SLICES = 4
STRIPS = 4  # simdgroups in a threadgroup

# Loads `held` where a row does not simply go on from the row before it, and keeps it after the row. `at(i)` is the
# place of a lane's i-th value within one state.
LOAD = """
    const int parent = HISTORY ? parents[row] : row - 1;
    if (row == 0 || parent != row - 1) {
      for (int i = 0; i < HELD; i++) held[i] = parent < 0 ? state[AT] : states[size_t(parent) * SIZE + AT];
    }
"""
STORE = """
    if (HISTORY || row == rows - 1) {
      for (int i = 0; i < HELD; i++) states[(HISTORY ? size_t(row) * SIZE : 0) + AT] = held[i];
    }
"""


def _with_places(body: str, place: str) -> str:
    return body.replace("LOAD", LOAD).replace("STORE", STORE).replace("AT]", f"{place}]")


DELTA = MetalKernel(
    name="delta_steps",
    inputs=("queries", "keys", "values", "decay", "strength", "state", "parents"),
    outputs=("y", "states"),
    body=_with_places(
        """
  const int lane = int(thread_index_in_simdgroup), slice = lane / 8, head = int(thread_position_in_grid.z);
  const int column = int(thread_position_in_grid.y) * 8 + lane % 8, rows = queries_shape[0];
  const int shared = head / (HEADS / KEY_HEADS), HELD = DIM / 4;
  const size_t SIZE = size_t(HEADS) * DIM * VALUE_DIM, corner = size_t(head) * DIM * VALUE_DIM + column;
  float held[DIM / 4];
  for (int row = 0; row < rows; row++) {
    LOAD
    const size_t key = (size_t(row) * KEY_HEADS + shared) * DIM, by_head = size_t(row) * HEADS + head;
    float found = 0.0f;
    for (int i = 0; i < HELD; i++) {
      held[i] = held[i] * decay[BY_CHANNEL ? by_head * DIM + i * 4 + slice : by_head];
      found = fma(held[i], float(keys[key + i * 4 + slice]), found);
    }
    found = found + simd_shuffle_xor(found, ushort(8));
    found = found + simd_shuffle_xor(found, ushort(16));
    const float wanted = float(values[by_head * VALUE_DIM + column]) - found;
    const float change = strength[by_head] * wanted;
    float result = 0.0f;
    for (int i = 0; i < HELD; i++) {
      held[i] = fma(float(keys[key + i * 4 + slice]), change, held[i]);
      result = fma(held[i], float(queries[key + i * 4 + slice]), result);
    }
    result = result + simd_shuffle_xor(result, ushort(8));
    result = result + simd_shuffle_xor(result, ushort(16));
    if (slice == 0) y[by_head * VALUE_DIM + column] = Out(result);
    STORE
  }
""",
        "corner + size_t(i * 4 + slice) * VALUE_DIM",
    ),
)

MAMBA = MetalKernel(
    name="mamba_scan",
    inputs=("x", "b", "c", "steps", "decay", "skip", "state", "parents"),
    outputs=("y", "states"),
    body=_with_places(
        """
  const int lane = int(thread_index_in_simdgroup), slice = lane % 4, head = int(thread_position_in_grid.z);
  const int channel = int(thread_position_in_grid.y) * 8 + lane / 4, rows = x_shape[0];
  const int shared = head / (HEADS / GROUPS), HELD = STATE / 4;
  const size_t SIZE = size_t(HEADS) * DIM * STATE, corner = (size_t(head) * DIM + channel) * STATE + slice;
  float held[STATE / 4];
  for (int row = 0; row < rows; row++) {
    LOAD
    const size_t by_head = size_t(row) * HEADS + head, in_group = (size_t(row) * GROUPS + shared) * STATE + slice;
    const float value = float(x[by_head * DIM + channel]);
    const float written = steps[by_head] * value;
    float result = 0.0f;
    for (int i = 0; i < HELD; i++) {
      held[i] = held[i] * decay[by_head];
      held[i] = fma(written, float(b[in_group + i * 4]), held[i]);
      result = fma(held[i], float(c[in_group + i * 4]), result);
    }
    result = result + simd_shuffle_xor(result, ushort(1));
    result = result + simd_shuffle_xor(result, ushort(2));
    if (slice == 0) y[by_head * DIM + channel] = Out(fma(float(skip[head]), value, result));
    STORE
  }
""",
        "corner + i * 4",
    ),
)


def delta_steps(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    decay: mx.array,
    strength: mx.array,
    state: mx.array,
    rows: Window,
    history: bool = True,
    out: mx.Dtype | None = None,
) -> tuple[mx.array, mx.array]:
    """Results [R, H, V] in `out` or the dtype of `values`, and states [R, H, D, V], or [H, D, V] without `history`.

    `queries`, `keys` [R, K, D], normed and scaled; value head h uses key head h // (H / K). `values` [R, H, V].
    `decay` [R, H], or [R, H, D] for a decay of each key channel; `strength` [R, H]; `state` [H, D, V]: float32.
    D is a multiple of 4, V of 8. Per row: S = decay * S; S += k (strength * (v - S^T k))^T; y = S^T q.
    """
    (count, key_heads, dim), (heads, value_dim) = keys.shape, values.shape[1:]
    y, states = DELTA(
        [queries, keys, values, decay, strength, state, rows.parents],
        grid=(LANES, value_dim // STRIP, heads),
        threadgroup=(LANES, min(STRIPS, value_dim // STRIP), 1),
        shapes=[(count, heads, value_dim), (count, *state.shape) if history else tuple(state.shape)],
        dtypes=[out or values.dtype, mx.float32],
        Out=out or values.dtype,
        HEADS=heads,
        KEY_HEADS=key_heads,
        DIM=dim,
        VALUE_DIM=value_dim,
        BY_CHANNEL=decay.ndim == 3,
        HISTORY=history,
    )
    return y, states


def mamba_scan(
    x: mx.array,
    b: mx.array,
    c: mx.array,
    steps: mx.array,
    decay: mx.array,
    skip: mx.array,
    state: mx.array,
    rows: Window,
    history: bool = True,
    out: mx.Dtype | None = None,
) -> tuple[mx.array, mx.array]:
    """Results [R, H, P] in `out` or the dtype of `x`, and states [R, H, P, N], or [H, P, N] without `history`.

    `x` [R, H, P]; `b`, `c` [R, G, N], head h uses group h // (H / G); `steps`, `decay` [R, H] from `mamba_steps`;
    `skip` [H]; `state` [H, P, N] float32. P is a multiple of 8, N of 4.
    Per row: S = decay * S + (step * x) b^T; y = S c + skip * x.
    """
    (count, heads, dim), (groups, size) = x.shape, b.shape[1:]
    y, states = MAMBA(
        [x, b, c, steps, decay, skip, state, rows.parents],
        grid=(LANES, dim // STRIP, heads),
        threadgroup=(LANES, min(STRIPS, dim // STRIP), 1),
        shapes=[(count, heads, dim), (count, *state.shape) if history else tuple(state.shape)],
        dtypes=[out or x.dtype, mx.float32],
        Out=out or x.dtype,
        HEADS=heads,
        GROUPS=groups,
        DIM=dim,
        STATE=size,
        HISTORY=history,
    )
    return y, states
