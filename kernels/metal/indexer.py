"""Sparse attention's choice of keys: scores of blocks, and the positions a row then reads.

A block's score is the sum over the indexer's heads of weight * relu(query . block key) * scale: heads in order, each
one chain over the head's dims. One thread makes one block of one row, so a score knows no other block. A row's complete
blocks compete (`selection.best_of_row`); the chosen blocks' positions and the unfinished tail are listed in order.
"""

from __future__ import annotations

import mlx.core as mx

from tensorfold.kernels.metal.launch import MetalKernel
from tensorfold.kernels.metal.selection import best_of_row

THREADS = 64

SCORES = MetalKernel(
    name="block_scores",
    inputs=("queries", "blocks", "weights", "scale"),
    outputs=("scores",),
    body="""
  const int block = int(thread_position_in_grid.x), row = int(thread_position_in_grid.y);
  float score = 0.0f;
  for (int head = 0; head < HEADS; head++) {
    float product = 0.0f;
    for (int d = 0; d < DIM; d++) {
      const float query = float(queries[(size_t(row) * HEADS + head) * DIM + d]);
      product = fma(query, float(blocks[size_t(block) * DIM + d]), product);
    }
    const float weight = WEIGHTED ? float(weights[row * HEADS + head]) : 1.0f;
    score = fma(weight, max(product * scale, 0.0f), score);
  }
  scores[size_t(row) * BLOCKS + block] = score;
""",
)

POSITIONS = MetalKernel(
    name="block_positions",
    inputs=("blocks", "counts", "visible"),
    outputs=("positions", "lengths"),
    body="""
  const int i = int(thread_position_in_grid.x), row = int(thread_position_in_grid.y);
  const int inside = counts[row] * RATIO, seen = visible[row];
  const int length = inside + seen % RATIO;
  int position = -1;
  if (i < inside) {
    position = blocks[row * KEPT + i / RATIO] * RATIO + i % RATIO;
  } else if (i < length) {
    position = seen - seen % RATIO + i - inside;
  }
  positions[row * (KEPT * RATIO + RATIO - 1) + i] = position;
  if (i == 0) lengths[row] = length;
""",
)


def block_scores(queries: mx.array, blocks: mx.array, scale: float, weights: mx.array | None = None) -> mx.array:
    """Scores [R, B] float32 of `queries` [R, H, D] against `blocks` [B, D]; `weights` [R, H] or all ones."""
    rows, heads, dim = queries.shape
    count = blocks.shape[0]
    (scores,) = SCORES(
        [queries, blocks, queries if weights is None else weights, mx.array(scale, mx.float32)],
        grid=(count, rows, 1),
        threadgroup=(min(THREADS, count), 1, 1),
        shapes=[(rows, count)],
        dtypes=[mx.float32],
        HEADS=heads,
        DIM=dim,
        BLOCKS=count,
        WEIGHTED=weights is not None,
    )
    return scores


def chosen_positions(scores: mx.array, visible: mx.array, ratio: int, budget: int) -> tuple[mx.array, mx.array]:
    """The positions each row reads, [R, budget + ratio - 1] int32, ascending, -1 behind; how many, [R] int32.

    `scores` [R, B] of blocks of `ratio` tokens, B at least visible // ratio of every row; `visible` [>= R] int32: how
    many tokens a row may see, itself with them. At most `budget` // `ratio` blocks are kept, all while there are no
    more, and the newest unfinished block always. What `attention.attend` takes as `chosen` and `counts`.
    """
    rows, kept = scores.shape[0], budget // ratio
    blocks, counts = best_of_row(scores, kept, visible // ratio)
    width = kept * ratio + ratio - 1
    positions, lengths = POSITIONS(
        [blocks, counts, visible],
        grid=(width, rows, 1),
        threadgroup=(min(THREADS, width), 1, 1),
        shapes=[(rows, width), (rows,)],
        dtypes=[mx.int32] * 2,
        KEPT=kept,
        RATIO=ratio,
    )
    return positions, lengths
