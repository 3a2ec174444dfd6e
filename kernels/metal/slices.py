"""How a sum over inputs is cut: by the matrix's shape alone.

The inputs of an output are cut into pieces (quantization groups, or blocks of a dense row). Slice s of `slices` takes
pieces s, s + slices, ... in order; slices are then added as a binary tree, upper half onto lower half. Row count, form
of the kernel and machine decide nothing here.
"""

from __future__ import annotations

MOST = 32  # one slice for each lane of a simdgroup
LEAST_BALANCE = 0.85


def slice_count(pieces: int) -> int:
    """The largest power of two up to 32 whose slices are nearly equally long; all pieces alone when they are few.

    80 pieces make 16 slices of 5, where 32 slices would leave half of the lanes idle in the last of 3 rounds.
    """
    options = [count for count in (32, 16, 8) if count <= pieces]
    for count in options:
        if pieces / (-(-pieces // count) * count) >= LEAST_BALANCE:
            return count
    if options:
        return options[-1]
    return 1 << (pieces.bit_length() - 1)


def matrix_tiles(rows: int) -> int:
    """How many 8x8 tiles of rows a threadgroup of a matrix form makes: 32 slices of 4 fill its memory exactly."""
    return 1 if rows <= 8 else 2 if rows <= 16 else 4


# Pieces of scalar bodies. Rows that stand side by side; a row past the last repeats it and is not written.
NEIGHBOURS = """
  const int row0 = int(thread_position_in_grid.y) * ROWS;
  used = min(ROWS, x_shape[0] - row0);
  for (int r = 0; r < ROWS; r++) from[r] = to[r] = size_t(row0 + min(r, used - 1));
"""

# Adds the slices of `sums` and writes. Slices lie in neighbouring lanes.
TREE_AND_STORE = """
  for (int distance = SLICES / 2; distance > 0; distance /= 2) {
    for (int o = 0; o < OUTPUTS; o++) {
      for (int r = 0; r < ROWS; r++) sums[o][r] = sums[o][r] + simd_shuffle_down(sums[o][r], ushort(distance));
    }
  }
  if (slice == 0) {
    for (int o = 0; o < OUTPUTS; o++) {
      for (int r = 0; r < used; r++) {
        if (first + o < N) y[to[r] * N + first + o] = Out(sums[o][r]);
      }
    }
  }
"""

# The same for a matrix form: `shared` holds 8x8 results, slice after slice, TILES below one another in each.
SHARED_TREE_AND_STORE = """
  const int thread_index = int(thread_index_in_threadgroup);
  for (int distance = SLICES / 2; distance > 0; distance /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = thread_index; i < distance * TILES * 64; i += SIMDGROUPS * 32) {
      shared[i] = shared[i] + shared[i + distance * TILES * 64];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = thread_index; i < TILES * 64; i += SIMDGROUPS * 32) {
    const int row = row0 + i / 8, n = n0 + i % 8;
    if (row < rows && n < N) y[size_t(row) * N + n] = Out(shared[i]);
  }
"""

# Where a lane of a matrix form stands: `down`, `across` of the two neighbours it holds of an 8x8 matrix, its outputs
# and rows. Outputs and rows past the end repeat the last and are not written.
MATRIX_PLACE = """
  const int lane = int(thread_index_in_simdgroup), simdgroup = int(simdgroup_index_in_threadgroup);
  const int down = ((lane / 4) & 4) + (lane / 2) % 4, across = ((lane / 4) & 2) * 2 + (lane % 2) * 2;
  const int n0 = int(threadgroup_position_in_grid.x) * 8, row0 = int(threadgroup_position_in_grid.y) * TILES * 8;
  const int rows = x_shape[0];
  size_t outputs[2], at_row[TILES];
  for (int e = 0; e < 2; e++) outputs[e] = size_t(min(n0 + across + e, N - 1));
  for (int t = 0; t < TILES; t++) at_row[t] = size_t(min(row0 + t * 8 + down, rows - 1));
"""
