"""Attention of a window's rows over committed keys and their own ancestors, cut at absolute positions.

Entry i of a row is position i, or the i-th position of the row's list where an indexer chose keys. Positions below
`committed` lie in the cache, later ones in the window, where a row reads its ancestors in order: as if its path were
contiguous. Entries are cut into blocks of 64 and chunks of 512 at fixed places. A chunk is one online softmax over its
blocks in order; chunks are then joined in order. A row looks only at its own entries, so neither other rows nor later
keys nor the number of chunks of a longer row reach its bits.

    entries     0 ... 63 | 64 ... 127 | ... ... 511 || 512 ...
    chunk       |<------------- chunk 0 ---------->||<- chunk 1
    one simdgroup makes up to four query heads of one key head, of one row, in one chunk:
      scores    lane l: entries l and l + 32 of the block, one chain over the head's dims
      result    lane l: value dims l, l + 32, ..., one chain over the block's entries
"""

from __future__ import annotations

import mlx.core as mx

from tensorfold.kernels.metal.launch import LANES, MetalKernel, parts
from tensorfold.kernels.metal.windows import Window

CHUNK = 512
MOST_SUMS = 32  # value dims that a lane holds, over all of its heads

CHUNKS = MetalKernel(
    name="attention_chunks",
    inputs=(
        "queries",
        "keys",
        "values",
        "window_keys",
        "window_values",
        "ancestors",
        "depths",
        "chosen",
        "counts",
        "committed",
        "scale",
        "softcap",
        "first_chunk",
    ),
    outputs=("partial", "peak", "mass"),
    body="""
  const int lane = int(thread_index_in_simdgroup), head0 = int(thread_position_in_grid.y) * EACH;
  const int rows = queries_shape[0], row = int(thread_position_in_grid.z) % rows;
  const int turn = int(thread_position_in_grid.z) / rows, chunk = first_chunk + turn;
  const int shared = head0 / (HEADS / KV_HEADS);
  const int position = committed + depths[row];
  const int end = CHOSEN ? counts[row] : position + 1;
  const int begin = CHOSEN || WINDOW == 0 ? 0 : max(0, position + 1 - WINDOW);
  const size_t query = (size_t(row) * HEADS + head0) * DIM;
  float sums[EACH][VALUE_DIM / 32], best[EACH], weight[EACH];
  for (int h = 0; h < EACH; h++) {
    best[h] = -INFINITY;
    weight[h] = 0.0f;
    for (int v = 0; v < VALUE_DIM / 32; v++) sums[h][v] = 0.0f;
  }
  const int chunk_end = min(end, (chunk + 1) * CHUNK);
  for (int block = chunk * CHUNK; block < chunk_end; block += 64) {
    if (block + 64 <= begin) continue;
    float scores[EACH][2];
    int places[2];  // a row of the cache, or -1 - a row of the window
    for (int part = 0; part < 2; part++) {
      const int entry = block + part * 32 + lane;
      const bool seen = entry >= begin && entry < end;
      // An entry that may not be seen repeats the row's last one and weighs exactly nothing.
      const int at = seen ? entry : end - 1;
      const int key = CHOSEN ? chosen[size_t(row) * chosen_shape[1] + at] : at;
      places[part] = key < committed ? key % keys_shape[0] : -1 - ancestors[row * ancestors_shape[1] + key - committed];
      const bool cached = places[part] >= 0;
      const size_t from = (size_t(cached ? places[part] : -1 - places[part]) * KV_HEADS + shared) * DIM;
      float products[EACH];
      for (int h = 0; h < EACH; h++) products[h] = 0.0f;
      for (int d = 0; d < DIM; d++) {
        const float key_value = cached ? float(keys[from + d]) : float(window_keys[from + d]);
        for (int h = 0; h < EACH; h++) {
          products[h] = fma(float(queries[query + h * DIM + d]), key_value, products[h]);
        }
      }
      for (int h = 0; h < EACH; h++) {
        float score = products[h] * scale;
        if (CAPPED) score = softcap * metal::precise::tanh(score / softcap);
        scores[h][part] = seen ? score : -INFINITY;
      }
    }
    for (int h = 0; h < EACH; h++) {
      const float top = max(best[h], simd_max(max(scores[h][0], scores[h][1])));
      const float shrink = metal::precise::exp(best[h] - top);
      for (int part = 0; part < 2; part++) scores[h][part] = metal::precise::exp(scores[h][part] - top);
      weight[h] = fma(weight[h], shrink, simd_sum(scores[h][0] + scores[h][1]));
      best[h] = top;
      for (int v = 0; v < VALUE_DIM / 32; v++) sums[h][v] = sums[h][v] * shrink;
    }
    for (int part = 0; part < 2; part++) {
      for (int l = 0; l < 32; l++) {
        const int entry = block + part * 32 + l;
        if (entry < begin || entry >= end) continue;  // the same for all lanes
        const int place = simd_shuffle(places[part], ushort(l));
        float shares[EACH];
        for (int h = 0; h < EACH; h++) shares[h] = simd_shuffle(scores[h][part], ushort(l));
        const size_t from = (size_t(place >= 0 ? place : -1 - place) * KV_HEADS + shared) * VALUE_DIM + lane;
        for (int v = 0; v < VALUE_DIM / 32; v++) {
          const float value = place >= 0 ? float(values[from + v * 32]) : float(window_values[from + v * 32]);
          for (int h = 0; h < EACH; h++) sums[h][v] = fma(shares[h], value, sums[h][v]);
        }
      }
    }
  }
  for (int h = 0; h < EACH; h++) {
    const size_t out = (size_t(turn) * rows + row) * HEADS + head0 + h;
    for (int v = 0; v < VALUE_DIM / 32; v++) partial[out * VALUE_DIM + v * 32 + lane] = sums[h][v];
    if (lane == 0) {
      peak[out] = best[h];
      mass[out] = weight[h];
    }
  }
""",
)

JOIN = MetalKernel(
    name="attention_join",
    inputs=("partial", "peak", "mass", "depths", "counts", "committed", "first_chunk"),
    outputs=("y",),
    body="""
  const int dim = int(thread_position_in_grid.x), head = int(thread_position_in_grid.y);
  const int row = int(thread_position_in_grid.z), rows = partial_shape[1];
  const int position = committed + depths[row];
  const int end = CHOSEN ? counts[row] : position + 1;
  const int begin = CHOSEN || WINDOW == 0 ? 0 : max(0, position + 1 - WINDOW);
  float best = -INFINITY, weight = 0.0f, sum = 0.0f;
  for (int chunk = begin / CHUNK; chunk * CHUNK < end; chunk++) {
    const size_t at = (size_t(chunk - first_chunk) * rows + row) * HEADS + head;
    const float top = max(best, peak[at]);
    const float kept = metal::precise::exp(best - top), added = metal::precise::exp(peak[at] - top);
    sum = sum * kept;
    sum = fma(partial[at * VALUE_DIM + dim], added, sum);
    weight = weight * kept;
    weight = fma(mass[at], added, weight);
    best = top;
  }
  y[(size_t(row) * HEADS + head) * VALUE_DIM + dim] = T(sum / weight);
""",
)


def _heads_together(shared: int, value_dim: int) -> int:
    """How many heads of one key head read its keys together; by shape, and no head's bits know of the others."""
    return next(each for each in (4, 3, 2, 1) if shared % each == 0 and each * value_dim <= MOST_SUMS * LANES)


def attend(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    window_keys: mx.array,
    window_values: mx.array,
    rows: Window,
    committed: int,
    scale: float,
    sliding: int = 0,
    softcap: float = 0.0,
    chosen: mx.array | None = None,
    counts: mx.array | None = None,
) -> mx.array:
    """Attention of `queries` [R, H, D] over the cache and the window: [R, H, V], in the dtype of `queries`.

    `keys` [C, G, D] and `values` [C, G, V] hold committed position p in row p % C: fewer rows than positions are a
    ring, and C is at least `sliding`, or `committed`. `window_keys` and `window_values` [R, G, ...] are the window's
    rows, not in the cache yet. Buffers that are not contiguous would be copied. Query head h reads head h // (H / G).
    D is anything, V a multiple of 32 up to 1,024. `sliding` W lets position p read i with p - W < i <= p, 0 reads all.
    `softcap` c turns a score s into c * tanh(s / c), 0 leaves it. With `chosen` [R, L] and `counts` [R], int32, row r
    reads the absolute positions chosen[r, :counts[r]], which ascend and end with its own; at least one, and `sliding`
    is 0.
    """
    count, heads, dim = queries.shape
    groups, value_dim = values.shape[1], values.shape[2]
    length = committed + rows.longest if chosen is None else chosen.shape[1]
    first = max(0, committed + 1 - sliding) // CHUNK if sliding else 0
    chunks = parts(length, CHUNK) - first
    lists = rows.ancestors if chosen is None else chosen
    lengths = rows.depths if counts is None else counts
    where = [mx.array(committed, mx.int32), mx.array(first, mx.int32)]
    limits = {"HEADS": heads, "VALUE_DIM": value_dim, "CHUNK": CHUNK, "WINDOW": sliding, "CHOSEN": chosen is not None}
    read = [queries, keys, values, window_keys, window_values]
    floats = [mx.array(scale, mx.float32), mx.array(softcap, mx.float32)]
    each = _heads_together(heads // groups, value_dim)
    partial, peak, mass = CHUNKS(
        [*read, rows.ancestors, rows.depths, lists, lengths, where[0], *floats, where[1]],
        grid=(LANES, heads // each, count * chunks),
        threadgroup=(LANES, 1, 1),
        shapes=[(chunks, count, heads, value_dim), (chunks, count, heads), (chunks, count, heads)],
        dtypes=[mx.float32] * 3,
        KV_HEADS=groups,
        DIM=dim,
        EACH=each,
        CAPPED=softcap > 0,
        **limits,
    )
    (y,) = JOIN(
        [partial, peak, mass, rows.depths, lengths, *where],
        grid=(value_dim, heads, count),
        threadgroup=(min(value_dim, 256), 1, 1),
        shapes=[(count, heads, value_dim)],
        dtypes=[queries.dtype],
        T=queries.dtype,
        **limits,
    )
    return y
