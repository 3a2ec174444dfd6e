"""Rows times an affine-coded matrix: y[r, n] = sum over groups of scale * (x . codes) + bias * (sum of x).

Two forms share their bits: per group one fp32 chain of fma over the inputs in order, from zero; then two fma onto the
slice's sum; then the tree of `slices`. `affine_scalar` is that, written out. `affine_matrix` gets the chain from 8x8
products, which is the same only where the hardware adds in order: `forms_agree` measures that, and without it one form
serves every row count. Codes and bf16 inputs have at most eight significant bits, so their products are exact.

Scalar form, one simdgroup, 16 slices (each lane: one slice of four outputs, up to four rows):

    lane        0 .. 15              16 .. 31
    outputs     n .. n+3             n+4 .. n+7
    groups      lane, lane+16, ...   lane-16, lane, ...

Matrix form, one threadgroup: 8, 16 or 32 rows times 8 outputs; simdgroup g makes slices g, g+8, ... one after another.

             outputs n..n+7
    rows 0-7   [ 8x8 ]  one P for each group, from zero: GROUP / 8 products
    rows 8-15  [ 8x8 ]  the same codes, decoded once for all tiles
"""

from __future__ import annotations

import mlx.core as mx

from tensorfold.kernels.metal.codes import CODES
from tensorfold.kernels.metal.launch import LANES, MetalKernel, parts
from tensorfold.kernels.metal.slices import (
    MATRIX_PLACE,
    NEIGHBOURS,
    SHARED_TREE_AND_STORE,
    TREE_AND_STORE,
    matrix_tiles,
    slice_count,
)

WIDTHS = (2, 3, 4, 5, 6, 8)
GROUPS = (32, 64, 128)
LANE_OUTPUTS = 4
MOST_LANE_ROWS = 4
MATRIX_SIDE = 8
MATRIX_SIMDGROUPS = 8


def scalar_body(rows: str) -> str:
    """The scalar form's body. `rows` sets which rows it makes:

    `used` of ROWS, row r from input row `from[r]` to result row `to[r]`, with the matrix that begins `before` outputs
    into the weights.
    """
    return f"""
  const int lane = int(thread_index_in_simdgroup), slice = lane % SLICES;
  const int simdgroup = int(thread_position_in_grid.x) / 32;
  const int first = (simdgroup * (32 / SLICES) + lane / SLICES) * OUTPUTS;
  size_t from[ROWS], to[ROWS], before = 0;
  int used = 0;
  {rows}
  float sums[OUTPUTS][ROWS];
  for (int o = 0; o < OUTPUTS; o++) for (int r = 0; r < ROWS; r++) sums[o][r] = 0.0f;
  for (int group = slice; group < K / GROUP; group += SLICES) {{
    float products[OUTPUTS][ROWS], totals[ROWS];
    for (int r = 0; r < ROWS; r++) totals[r] = 0.0f;
    for (int o = 0; o < OUTPUTS; o++) for (int r = 0; r < ROWS; r++) products[o][r] = 0.0f;
    for (int block = group * (GROUP / 32); block < (group + 1) * (GROUP / 32); block++) {{
      uint held[OUTPUTS][BITS];
      float4 fours[ROWS];
      for (int o = 0; o < OUTPUTS; o++) {{
        // An output past the end repeats the last one and is not written.
        const size_t at = (before + min(first + o, N - 1)) * (K / 32 * BITS) + block * BITS;
        hold_words<BITS>(words + at, held[o]);
      }}
      #pragma unroll
      for (int j = 0; j < 32; j++) {{
        if (j % 4 == 0) {{
          for (int r = 0; r < ROWS; r++) {{
            fours[r] = float4(((const device vec<T, 4>*)(x + from[r] * K + block * 32))[j / 4]);
          }}
        }}
        for (int r = 0; r < ROWS; r++) totals[r] = totals[r] + fours[r][j % 4];
        for (int o = 0; o < OUTPUTS; o++) {{
          const float code = float(held_code<BITS>(held[o], j));
          for (int r = 0; r < ROWS; r++) products[o][r] = fma(fours[r][j % 4], code, products[o][r]);
        }}
      }}
    }}
    for (int o = 0; o < OUTPUTS; o++) {{
      const size_t at = (before + min(first + o, N - 1)) * (K / GROUP) + group;
      const float scale = float(scales[at]), bias = float(biases[at]);
      for (int r = 0; r < ROWS; r++) {{
        sums[o][r] = fma(scale, products[o][r], sums[o][r]);
        sums[o][r] = fma(bias, totals[r], sums[o][r]);
      }}
    }}
  }}
{TREE_AND_STORE}"""


SCALAR = MetalKernel(
    name="affine_scalar",
    inputs=("x", "words", "scales", "biases"),
    outputs=("y",),
    header=CODES,
    body=scalar_body(NEIGHBOURS),
)

TOTALS = MetalKernel(
    name="affine_totals",
    inputs=("x",),
    outputs=("totals",),
    body="""
  const size_t group = thread_position_in_grid.x;
  float total = 0.0f;
  for (int k = 0; k < GROUP; k++) total = total + float(x[group * GROUP + k]);
  totals[group] = total;
""",
)

MATRIX = MetalKernel(
    name="affine_matrix",
    inputs=("x", "words", "scales", "biases", "totals"),
    outputs=("y",),
    header=CODES,
    body=f"""
  threadgroup float shared[SLICES * TILES * 64];
{MATRIX_PLACE}  for (int slice = simdgroup; slice < SLICES; slice += SIMDGROUPS) {{
    float sums[TILES][2];
    for (int t = 0; t < TILES; t++) sums[t][0] = sums[t][1] = 0.0f;
    for (int group = slice; group < K / GROUP; group += SLICES) {{
      simdgroup_float8x8 products[TILES], codes, inputs;
      for (int t = 0; t < TILES; t++) products[t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      for (int k0 = group * GROUP; k0 < (group + 1) * GROUP; k0 += 8) {{
        for (int e = 0; e < 2; e++) {{
          codes.thread_elements()[e] = float(code_at<BITS>(words + outputs[e] * (K / 32 * BITS), k0 + down));
        }}
        for (int t = 0; t < TILES; t++) {{
          for (int e = 0; e < 2; e++) inputs.thread_elements()[e] = float(x[at_row[t] * K + k0 + across + e]);
          simdgroup_multiply_accumulate(products[t], inputs, codes, products[t]);
        }}
      }}
      for (int e = 0; e < 2; e++) {{
        const float scale = float(scales[outputs[e] * (K / GROUP) + group]);
        const float bias = float(biases[outputs[e] * (K / GROUP) + group]);
        for (int t = 0; t < TILES; t++) {{
          sums[t][e] = fma(scale, products[t].thread_elements()[e], sums[t][e]);
          sums[t][e] = fma(bias, totals[at_row[t] * (K / GROUP) + group], sums[t][e]);
        }}
      }}
    }}
    for (int t = 0; t < TILES; t++) {{
      for (int e = 0; e < 2; e++) shared[(slice * TILES + t) * 64 + down * 8 + across + e] = sums[t][e];
    }}
  }}
{SHARED_TREE_AND_STORE}""",
)


def affine_scalar(
    x: mx.array, words: mx.array, scales: mx.array, biases: mx.array, bits: int, group: int, out: mx.Dtype | None = None
) -> mx.array:
    """`x` [R, K] times the matrix of `words` [N, K * bits / 32] with `scales`, `biases` [N, K / group]: [R, N].

    `x` float32, bfloat16 or float16, K a multiple of `group`; scales in any of these. The result has `out`, or the
    dtype of `x`. Any number of rows, four of them for each reading of the weights.
    """
    (rows, inputs), outputs = x.shape, words.shape[0]
    slices = slice_count(inputs // group)
    lane_rows = next(count for count in (1, 2, MOST_LANE_ROWS) if count >= min(rows, MOST_LANE_ROWS))
    simdgroups = parts(outputs, LANES // slices * LANE_OUTPUTS)
    (y,) = SCALAR(
        [x, words, scales, biases],
        grid=(LANES * simdgroups, parts(rows, lane_rows), 1),
        threadgroup=(2 * LANES, 1, 1),
        shapes=[(rows, outputs)],
        dtypes=[out or x.dtype],
        T=x.dtype,
        Out=out or x.dtype,
        K=inputs,
        N=outputs,
        BITS=bits,
        GROUP=group,
        SLICES=slices,
        OUTPUTS=LANE_OUTPUTS,
        ROWS=lane_rows,
    )
    return y


def affine_totals(x: mx.array, group: int) -> mx.array:
    """Sums of the groups of `x` [R, K] in float32: [R, K / group]; one for all matrices that read the same rows."""
    rows, inputs = x.shape
    (totals,) = TOTALS(
        [x],
        grid=(rows * (inputs // group), 1, 1),
        threadgroup=(LANES, 1, 1),
        shapes=[(rows, inputs // group)],
        dtypes=[mx.float32],
        GROUP=group,
    )
    return totals


def affine_matrix(
    x: mx.array,
    words: mx.array,
    scales: mx.array,
    biases: mx.array,
    bits: int,
    group: int,
    out: mx.Dtype | None = None,
    totals: mx.array | None = None,
) -> mx.array:
    """As `affine_scalar`, on 8x8 products; `totals` may be given when `affine_totals` was already asked."""
    (rows, inputs), outputs = x.shape, words.shape[0]
    slices = slice_count(inputs // group)
    tiles = matrix_tiles(rows)
    simdgroups = min(MATRIX_SIMDGROUPS, slices)
    (y,) = MATRIX(
        [x, words, scales, biases, affine_totals(x, group) if totals is None else totals],
        grid=(LANES * simdgroups * parts(outputs, MATRIX_SIDE), parts(rows, MATRIX_SIDE * tiles), 1),
        threadgroup=(LANES * simdgroups, 1, 1),
        shapes=[(rows, outputs)],
        dtypes=[out or x.dtype],
        T=x.dtype,
        Out=out or x.dtype,
        K=inputs,
        N=outputs,
        BITS=bits,
        GROUP=group,
        SLICES=slices,
        TILES=tiles,
        SIMDGROUPS=simdgroups,
    )
    return y


def affine_matmul(
    x: mx.array,
    words: mx.array,
    scales: mx.array,
    biases: mx.array,
    bits: int,
    group: int,
    out: mx.Dtype | None = None,
    matrix_from: int = 0,
) -> mx.array:
    """The matrix form from `matrix_from` rows on, the scalar form below; 0: the scalar form always.

    `matrix_from` may be set only where `forms_agree` said yes for this matrix's shape, width and dtypes.
    """
    form = affine_matrix if 0 < matrix_from <= x.shape[0] else affine_scalar
    return form(x, words, scales, biases, bits, group, out)


def forms_agree(x: mx.array, words: mx.array, scales: mx.array, biases: mx.array, bits: int, group: int) -> bool:
    """Whether both forms give the same float32 bits for these rows: the load check's question, asked for each shape."""
    scalar = affine_scalar(x, words, scales, biases, bits, group, mx.float32)
    matrix = affine_matrix(x, words, scales, biases, bits, group, mx.float32)
    return bool(mx.all(scalar.view(mx.uint32) == matrix.view(mx.uint32)))
