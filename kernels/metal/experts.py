"""Chosen experts: every (row, slot) pair is a row of one expert's matrix, made as if it stood alone.

Pairs are put in the order of their experts, so that members of one expert share a reading of its weights; that is a
schedule and moves no bits. Slots are then added in slot order. Everything stays on the device: no count comes back to
the host, and pairs that begin no group end at once.

    slot of the order   0     1     2     3     4    ...
    expert              2     2     2     7     7            distinct experts ascend
    group size          2     0     1     2     0            groups of at most ROWS members begin here
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from tensorfold.kernels.metal import affine, dense
from tensorfold.kernels.metal.codes import CODES
from tensorfold.kernels.metal.launch import LANES, MetalKernel, parts
from tensorfold.kernels.metal.slices import slice_count

THREADS = 64

ORDER = MetalKernel(
    name="expert_order",
    inputs=("chosen",),
    outputs=("members", "sizes"),
    body="""
  const int pair = int(thread_position_in_grid.x), expert = chosen[pair];
  int before = 0, earlier = 0, total = 0;
  for (int other = 0; other < PAIRS; other++) {
    const int theirs = chosen[other];
    before += theirs < expert ? 1 : 0;
    earlier += theirs == expert && other < pair ? 1 : 0;
    total += theirs == expert ? 1 : 0;
  }
  members[before + earlier] = pair;
  sizes[before + earlier] = earlier % ROWS == 0 ? min(ROWS, total - earlier) : 0;
""",
)

# All threads of a threadgroup see the same slot, so they end together.
MEMBERS = """
  const int slot = int(thread_position_in_grid.y);
  used = sizes[slot];
  if (used == 0) return;
  before = size_t(chosen[members[slot]]) * N;
  for (int r = 0; r < ROWS; r++) {
    to[r] = size_t(members[slot + min(r, used - 1)]);
    from[r] = to[r] / SLOTS;
  }
"""

AFFINE = MetalKernel(
    name="expert_affine",
    inputs=("x", "words", "scales", "biases", "chosen", "members", "sizes"),
    outputs=("y",),
    body=affine.scalar_body(MEMBERS),
    header=CODES,
)

DENSE = MetalKernel(
    name="expert_dense",
    inputs=("x", "weights", "chosen", "members", "sizes"),
    outputs=("y",),
    body=dense.scalar_body(MEMBERS),
)

COMBINE = MetalKernel(
    name="expert_combine",
    inputs=("y", "shares", "shared"),
    outputs=("out",),
    body="""
  const int n = int(thread_position_in_grid.x), row = int(thread_position_in_grid.y);
  float sum = 0.0f;
  for (int slot = 0; slot < SLOTS; slot++) {
    sum = fma(shares[row * SLOTS + slot], float(y[(size_t(row) * SLOTS + slot) * N + n]), sum);
  }
  if (SHARED) sum = sum + float(shared[size_t(row) * N + n]);
  out[size_t(row) * N + n] = Out(sum);
""",
)


@dataclass(frozen=True, slots=True)
class ExpertOrder:
    """`chosen` [R, slots] int32 with its pairs in the order of their experts: `members`, `sizes` [R * slots] int32."""

    chosen: mx.array
    members: mx.array
    sizes: mx.array
    rows: int


def expert_order(chosen: mx.array) -> ExpertOrder:
    """The schedule of the experts that rows chose; one for all projections of a layer. A row chooses each once."""
    count, slots = chosen.shape
    rows, pairs = dense.lane_rows(count), count * slots
    members, sizes = ORDER(
        [chosen],
        grid=(pairs, 1, 1),
        threadgroup=(min(THREADS, pairs), 1, 1),
        shapes=[(pairs,)] * 2,
        dtypes=[mx.int32] * 2,
        PAIRS=pairs,
        ROWS=rows,
    )
    return ExpertOrder(chosen, members, sizes, rows)


def expert_affine(
    x: mx.array,
    words: mx.array,
    scales: mx.array,
    biases: mx.array,
    bits: int,
    group: int,
    order: ExpertOrder,
    out: mx.Dtype | None = None,
) -> mx.array:
    """Each pair's input times its expert's matrix: [R * slots, N], pairs in row order, in `out` or the dtype of `x`.

    `x` [R, K] is read by all slots of a row, [R * slots, K] by its own pair. `words` [E, N, K * bits / 32], `scales`
    and `biases` [E, N, K / group].
    """
    outputs, inputs = words.shape[1], x.shape[1]
    slices = slice_count(inputs // group)
    pairs = order.members.size
    (y,) = AFFINE(
        [x, words, scales, biases, order.chosen, order.members, order.sizes],
        grid=(LANES * parts(outputs, LANES // slices * affine.LANE_OUTPUTS), pairs, 1),
        threadgroup=(2 * LANES, 1, 1),
        shapes=[(pairs, outputs)],
        dtypes=[out or x.dtype],
        T=x.dtype,
        Out=out or x.dtype,
        K=inputs,
        N=outputs,
        BITS=bits,
        GROUP=group,
        SLICES=slices,
        OUTPUTS=affine.LANE_OUTPUTS,
        ROWS=order.rows,
        SLOTS=pairs // x.shape[0],
    )
    return y


def expert_dense(x: mx.array, weights: mx.array, order: ExpertOrder, out: mx.Dtype | None = None) -> mx.array:
    """As `expert_affine`, with dense `weights` [E, N, K]."""
    outputs, inputs = weights.shape[1:]
    blocks = parts(inputs, dense.BLOCK)
    slices, pairs = slice_count(blocks), order.members.size
    (y,) = DENSE(
        [x, weights, order.chosen, order.members, order.sizes],
        grid=(LANES * parts(outputs, LANES // slices * dense.LANE_OUTPUTS), pairs, 1),
        threadgroup=(2 * LANES, 1, 1),
        shapes=[(pairs, outputs)],
        dtypes=[out or x.dtype],
        Out=out or x.dtype,
        K=inputs,
        N=outputs,
        BLOCKS=blocks,
        SLICES=slices,
        OUTPUTS=dense.LANE_OUTPUTS,
        ROWS=order.rows,
        SLOTS=pairs // x.shape[0],
    )
    return y


def combine(y: mx.array, shares: mx.array, shared: mx.array | None = None, out: mx.Dtype | None = None) -> mx.array:
    """Sum over slots of share * y, in slot order, then plus `shared` [R, N]: [R, N] in `out` or the dtype of `y`.

    `y` [R * slots, N], best in float32; `shares` [R, slots] float32.
    """
    (rows, slots), width = shares.shape, y.shape[1]
    (made,) = COMBINE(
        [y, shares, y if shared is None else shared],
        grid=(width, rows, 1),
        threadgroup=(min(256, width), 1, 1),
        shapes=[(rows, width)],
        dtypes=[out or y.dtype],
        Out=out or y.dtype,
        N=width,
        SLOTS=slots,
        SHARED=shared is not None,
    )
    return made
