"""The n best values of a row, ties to the lower index: blocks for an indexer, candidates for the host's draw.

One threadgroup makes one row. Four passes over eight bits each find the least value that is kept, by counting; a last
pass keeps what is above it, and of its equals the lowest. Indices come out ascending. Counting is in whole numbers, so
no order of threads can change it.
"""

from __future__ import annotations

import mlx.core as mx

from tensorfold.kernels.metal.launch import MetalKernel

FEW_THREADS, MOST_THREADS = 256, 1024
LONG_ROW = 8192

# A float's bits as an unsigned number of the same order; minus zero counts as zero, and what is no number as lowest.
ORDERED = """
inline uint ordered(float value) {
  if (isnan(value)) return 0u;
  const uint bits = as_type<uint>(value == 0.0f ? 0.0f : value);
  return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}
"""

BEST = MetalKernel(
    name="best_of_row",
    inputs=("scores", "lengths"),
    outputs=("indices", "counts"),
    header=ORDERED,
    body="""
  threadgroup atomic_uint bins[256];
  threadgroup uint settled[2];
  threadgroup uint above[32];
  threadgroup uint equal[32];
  const int thread_index = int(thread_index_in_threadgroup), row = int(threadgroup_position_in_grid.x);
  const int lane = int(thread_index_in_simdgroup), simdgroup = int(simdgroup_index_in_threadgroup);
  const size_t start = size_t(row) * WIDTH;
  const int length = LIMITED ? min(int(lengths[row]), WIDTH) : WIDTH, kept = min(length, KEPT);
  // The bits of the least kept value, found from the top, and how many of its equals are kept.
  uint prefix = 0u, wanted = uint(kept);
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (thread_index < 256) atomic_store_explicit(&bins[thread_index], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Most values of a first pass fall into few bins: a thread counts a run of equals itself.
    uint run_bin = 0u, run = 0u;
    for (int i = thread_index; i < length; i += THREADS) {
      const uint bits = ordered(float(scores[start + i])), bin = (bits >> shift) & 255u;
      if (shift < 24 && (bits >> (shift + 8)) != (prefix >> (shift + 8))) continue;
      if (bin != run_bin) {
        atomic_fetch_add_explicit(&bins[run_bin], run, memory_order_relaxed);
        run_bin = bin;
        run = 0u;
      }
      run++;
    }
    atomic_fetch_add_explicit(&bins[run_bin], run, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index == 0) {
      uint left = wanted, bin = 255u;
      for (; bin > 0u; bin--) {
        const uint here = atomic_load_explicit(&bins[bin], memory_order_relaxed);
        if (here >= left) break;
        left -= here;
      }
      settled[0] = prefix | (bin << shift);
      settled[1] = left;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    prefix = settled[0];
    wanted = settled[1];
  }
  uint written = 0u, equals = 0u;
  for (int base = 0; base < length; base += THREADS) {
    const int i = base + thread_index;
    const uint bits = i < length ? ordered(float(scores[start + i])) : 0u;
    const bool over = i < length && bits > prefix, same = i < length && bits == prefix;
    const uint over_before = simd_prefix_exclusive_sum(over ? 1u : 0u);
    const uint same_before = simd_prefix_exclusive_sum(same ? 1u : 0u);
    if (lane == 31) {
      above[simdgroup] = over_before + (over ? 1u : 0u);
      equal[simdgroup] = same_before + (same ? 1u : 0u);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint overs = 0u, sames = 0u, all_overs = 0u, all_sames = 0u;
    for (int s = 0; s < THREADS / 32; s++) {
      overs += s < simdgroup ? above[s] : 0u;
      sames += s < simdgroup ? equal[s] : 0u;
      all_overs += above[s];
      all_sames += equal[s];
    }
    // Equals before this element, and how many of them are kept; kept elements before it give its place.
    const uint mine = equals + sames + same_before;
    const uint place = written + overs + over_before + min(mine, wanted) - min(equals, wanted);
    if (over || (same && mine < wanted)) indices[size_t(row) * KEPT + place] = i;
    written += all_overs + min(equals + all_sames, wanted) - min(equals, wanted);
    equals += all_sames;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (int slot = kept + thread_index; slot < KEPT; slot += THREADS) indices[size_t(row) * KEPT + slot] = -1;
  if (thread_index == 0) counts[row] = kept;
""",
)

LOG_SUM = MetalKernel(
    name="log_sum_exp",
    inputs=("scores",),
    outputs=("total",),
    body="""
  threadgroup float peaks[32];
  threadgroup float sums[32];
  const int thread_index = int(thread_index_in_threadgroup), row = int(threadgroup_position_in_grid.x);
  const int lane = int(thread_index_in_simdgroup), simdgroup = int(simdgroup_index_in_threadgroup);
  const size_t start = size_t(row) * WIDTH;
  float top = -INFINITY;
  for (int i = thread_index; i < WIDTH; i += THREADS) top = max(top, float(scores[start + i]));
  top = simd_max(top);
  if (lane == 0) peaks[simdgroup] = top;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int s = 0; s < THREADS / 32; s++) top = max(top, peaks[s]);
  float sum = 0.0f;
  for (int i = thread_index; i < WIDTH; i += THREADS) sum = sum + metal::precise::exp(float(scores[start + i]) - top);
  sum = simd_sum(sum);
  if (lane == 0) sums[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index == 0) {
    float all = sums[0];
    for (int s = 1; s < THREADS / 32; s++) all = all + sums[s];
    total[row] = top + metal::precise::log(all);
  }
""",
)


def _threads(width: int) -> int:
    return FEW_THREADS if width <= LONG_ROW else MOST_THREADS


def best_of_row(scores: mx.array, kept: int, lengths: mx.array | None = None) -> tuple[mx.array, mx.array]:
    """Indices [R, kept] int32, ascending, -1 behind; how many [R] int32. Of equal values the lower indices are kept.

    `scores` [R, width] in a floating dtype. With `lengths` [>= R] int32 only the first lengths[r] of row r compete.
    """
    (rows, width), threads = scores.shape, _threads(scores.shape[1])
    indices, counts = BEST(
        [scores, scores if lengths is None else lengths],
        grid=(threads * rows, 1, 1),
        threadgroup=(threads, 1, 1),
        shapes=[(rows, kept), (rows,)],
        dtypes=[mx.int32, mx.int32],
        WIDTH=width,
        KEPT=kept,
        THREADS=threads,
        LIMITED=lengths is not None,
    )
    return indices, counts


def candidates(logits: mx.array, kept: int) -> tuple[mx.array, mx.array, mx.array]:
    """What the host draws from: ids [R, kept] ascending, their logits in float32, and the row's log-sum-exp [R].

    These are the first `kept` of the row by logit and then by lower id, so the host's own order of them is the whole
    row's. Ask for top_k + 8, or for 1,024 where top-k is off.
    """
    kept = min(kept, logits.shape[1])
    ids, _ = best_of_row(logits, kept)
    values = mx.take_along_axis(logits, ids, axis=1).astype(mx.float32)
    return ids, values, log_sum_exp(logits)


def log_sum_exp(logits: mx.array) -> mx.array:
    """log(sum(exp(row))) [R] in float32, of logits [R, V]."""
    (rows, width), threads = logits.shape, _threads(logits.shape[1])
    (total,) = LOG_SUM(
        [logits],
        grid=(threads * rows, 1, 1),
        threadgroup=(threads, 1, 1),
        shapes=[(rows,)],
        dtypes=[mx.float32],
        WIDTH=width,
        THREADS=threads,
    )
    return total
