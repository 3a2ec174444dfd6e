"""Rows times a dense matrix in bf16, fp16 or fp32: y[r, n] = sum of x[r, k] * w[n, k] in float32.

The inputs of an output are cut into blocks of 32, the blocks into slices as in `slices`; a slice is one chain of fma in
order. As with affine matrices a scalar form is the definition, and a form on 8x8 products may take its place where
`dense_forms_agree` found the same bits. Inputs past the end count as zeros in both.
"""

from __future__ import annotations

import mlx.core as mx

from tensorfold.kernels.metal.launch import LANES, MetalKernel, parts
from tensorfold.kernels.metal.slices import (
    MATRIX_PLACE,
    NEIGHBOURS,
    SHARED_TREE_AND_STORE,
    TREE_AND_STORE,
    matrix_tiles,
    slice_count,
)

BLOCK = 32
LANE_OUTPUTS = 4
MOST_LANE_ROWS = 4
MATRIX_SIDE = 8
MATRIX_SIMDGROUPS = 8


def scalar_body(rows: str) -> str:
    """The scalar form's body; `rows` as in `affine.scalar_body`."""
    return f"""
  const int lane = int(thread_index_in_simdgroup), slice = lane % SLICES;
  const int simdgroup = int(thread_position_in_grid.x) / 32;
  const int first = (simdgroup * (32 / SLICES) + lane / SLICES) * OUTPUTS;
  size_t from[ROWS], to[ROWS], before = 0;
  int used = 0;
  {rows}
  float sums[OUTPUTS][ROWS];
  for (int o = 0; o < OUTPUTS; o++) for (int r = 0; r < ROWS; r++) sums[o][r] = 0.0f;
  for (int block = slice; block < BLOCKS; block += SLICES) {{
    for (int k = block * 32; k < block * 32 + 32; k++) {{
      const bool inside = k < K;
      float values[ROWS];
      for (int r = 0; r < ROWS; r++) values[r] = inside ? float(x[from[r] * K + k]) : 0.0f;
      for (int o = 0; o < OUTPUTS; o++) {{
        // An output past the end repeats the last one and is not written.
        const float w = inside ? float(weights[(before + min(first + o, N - 1)) * K + k]) : 0.0f;
        for (int r = 0; r < ROWS; r++) sums[o][r] = fma(values[r], w, sums[o][r]);
      }}
    }}
  }}
{TREE_AND_STORE}"""


SCALAR = MetalKernel("dense_scalar", ("x", "weights"), ("y",), scalar_body(NEIGHBOURS))

MATRIX = MetalKernel(
    name="dense_matrix",
    inputs=("x", "weights"),
    outputs=("y",),
    body=f"""
  threadgroup float shared[SLICES * TILES * 64];
{MATRIX_PLACE}
  for (int slice = simdgroup; slice < SLICES; slice += SIMDGROUPS) {{
    simdgroup_float8x8 sums[TILES], columns, inputs;
    for (int t = 0; t < TILES; t++) sums[t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (int block = slice; block < BLOCKS; block += SLICES) {{
      for (int k0 = block * 32; k0 < block * 32 + 32; k0 += 8) {{
        for (int e = 0; e < 2; e++) {{
          columns.thread_elements()[e] = k0 + down < K ? float(weights[outputs[e] * K + k0 + down]) : 0.0f;
        }}
        for (int t = 0; t < TILES; t++) {{
          for (int e = 0; e < 2; e++) {{
            inputs.thread_elements()[e] = k0 + across + e < K ? float(x[at_row[t] * K + k0 + across + e]) : 0.0f;
          }}
          simdgroup_multiply_accumulate(sums[t], inputs, columns, sums[t]);
        }}
      }}
    }}
    for (int t = 0; t < TILES; t++) {{
      for (int e = 0; e < 2; e++) {{
        shared[(slice * TILES + t) * 64 + down * 8 + across + e] = sums[t].thread_elements()[e];
      }}
    }}
  }}
{SHARED_TREE_AND_STORE}""",
)


def lane_rows(rows: int) -> int:
    """How many rows a lane of a scalar form makes at once."""
    return next(count for count in (1, 2, MOST_LANE_ROWS) if count >= min(rows, MOST_LANE_ROWS))


def dense_scalar(x: mx.array, weights: mx.array, out: mx.Dtype | None = None) -> mx.array:
    """`x` [R, K] times `weights` [N, K] transposed: [R, N], in `out` or the dtype of `x`."""
    (rows, inputs), outputs = x.shape, weights.shape[0]
    blocks = parts(inputs, BLOCK)
    slices, together = slice_count(blocks), lane_rows(rows)
    (y,) = SCALAR(
        [x, weights],
        grid=(LANES * parts(outputs, LANES // slices * LANE_OUTPUTS), parts(rows, together), 1),
        threadgroup=(2 * LANES, 1, 1),
        shapes=[(rows, outputs)],
        dtypes=[out or x.dtype],
        Out=out or x.dtype,
        K=inputs,
        N=outputs,
        BLOCKS=blocks,
        SLICES=slices,
        OUTPUTS=LANE_OUTPUTS,
        ROWS=together,
    )
    return y


def dense_matrix(x: mx.array, weights: mx.array, out: mx.Dtype | None = None) -> mx.array:
    """As `dense_scalar`, on 8x8 products."""
    (rows, inputs), outputs = x.shape, weights.shape[0]
    blocks = parts(inputs, BLOCK)
    slices, tiles = slice_count(blocks), matrix_tiles(rows)
    simdgroups = min(MATRIX_SIMDGROUPS, slices)
    (y,) = MATRIX(
        [x, weights],
        grid=(LANES * simdgroups * parts(outputs, MATRIX_SIDE), parts(rows, MATRIX_SIDE * tiles), 1),
        threadgroup=(LANES * simdgroups, 1, 1),
        shapes=[(rows, outputs)],
        dtypes=[out or x.dtype],
        Out=out or x.dtype,
        K=inputs,
        N=outputs,
        BLOCKS=blocks,
        SLICES=slices,
        TILES=tiles,
        SIMDGROUPS=simdgroups,
    )
    return y


def dense_matmul(x: mx.array, weights: mx.array, out: mx.Dtype | None = None, matrix_from: int = 0) -> mx.array:
    """The matrix form from `matrix_from` rows on, the scalar form below; 0: the scalar form always.

    `matrix_from` may be set only where `dense_forms_agree` said yes for this shape and these dtypes. A router asks for
    `out` float32.
    """
    form = dense_matrix if 0 < matrix_from <= x.shape[0] else dense_scalar
    return form(x, weights, out)


def dense_forms_agree(x: mx.array, weights: mx.array) -> bool:
    """Whether both forms give the same float32 bits for these rows: the load check's question."""
    scalar, matrix = dense_scalar(x, weights, mx.float32), dense_matrix(x, weights, mx.float32)
    return bool(mx.all(scalar.view(mx.uint32) == matrix.view(mx.uint32)))
