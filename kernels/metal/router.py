"""Choosing experts from a row's logits, in float32, ties to the lower id.

One threadgroup makes one row, with a thread for each expert up to 256. An expert's rank is the number of experts before
it, by score and then by id: nothing is sorted, and equal scores cannot change places. Logits that are not numbers still
give valid ids.
"""

from __future__ import annotations

from typing import Literal

import mlx.core as mx

from tensorfold.kernels.metal.activations import ACTIVATIONS
from tensorfold.kernels.metal.launch import LANES, MetalKernel, parts

MOST_THREADS = 256

ROUTE = MetalKernel(
    name="route",
    inputs=("logits", "correction", "expert_scale", "scale"),
    outputs=("chosen", "shares"),
    header=ACTIVATIONS,
    body="""
  threadgroup float scores[EXPERTS];
  threadgroup float ranked[EXPERTS];
  threadgroup int slots[SLOTS];
  threadgroup float peaks[8];
  threadgroup float sums[8];
  const int thread_index = int(thread_index_in_threadgroup), row = int(threadgroup_position_in_grid.x);
  const int simdgroup = int(simdgroup_index_in_threadgroup);
  float top = -INFINITY;
  for (int e = thread_index; e < EXPERTS; e += THREADS) top = max(top, float(logits[row * EXPERTS + e]));
  peaks[simdgroup] = simd_max(top);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int s = 0; s < THREADS / 32; s++) top = max(top, peaks[s]);
  float part = 0.0f;
  for (int e = thread_index; e < EXPERTS; e += THREADS) {
    const float logit = float(logits[row * EXPERTS + e]);
    scores[e] = SIGMOID ? sigmoid_of(logit) : OVER_CHOSEN ? logit : metal::precise::exp(logit - top);
    part = part + scores[e];
  }
  sums[simdgroup] = simd_sum(part);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = sums[0];
  for (int s = 1; s < THREADS / 32; s++) sum = sum + sums[s];
  for (int e = thread_index; e < EXPERTS; e += THREADS) {
    if (!SIGMOID && !OVER_CHOSEN) scores[e] = scores[e] / sum;
    ranked[e] = CORRECTED ? scores[e] + float(correction[e]) : scores[e];
  }
  if (thread_index < SLOTS) slots[thread_index] = thread_index;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int e = thread_index; e < EXPERTS; e += THREADS) {
    int rank = 0;
    for (int other = 0; other < EXPERTS; other++) {
      rank += ranked[other] > ranked[e] || (ranked[other] == ranked[e] && other < e) ? 1 : 0;
    }
    if (rank < SLOTS && !isnan(ranked[e])) slots[rank] = e;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index >= SLOTS) return;
  const int expert = slots[thread_index];
  float share = OVER_CHOSEN ? metal::precise::exp(scores[expert] - scores[slots[0]]) : scores[expert];
  float total = 0.0f;
  for (int slot = 0; slot < SLOTS; slot++) {
    const float theirs = scores[slots[slot]];
    total = total + (OVER_CHOSEN ? metal::precise::exp(theirs - scores[slots[0]]) : theirs);
  }
  if (NORMALIZED || OVER_CHOSEN) share = share / (SIGMOID ? total + 1e-20f : total);
  share = share * scale;
  if (SCALED) share = share * float(expert_scale[expert]);
  chosen[row * SLOTS + thread_index] = expert;
  shares[row * SLOTS + thread_index] = share;
""",
)


def route(
    logits: mx.array,
    slots: int,
    scoring: Literal["softmax", "sigmoid"],
    normalize: bool = True,
    over_chosen: bool = False,
    correction: mx.array | None = None,
    scale: float = 1.0,
    expert_scale: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """The chosen experts [R, slots] int32, best first, and their shares [R, slots] float32.

    `logits` [R, E], E at most 3,000, best in float32; `slots` at most 32 and E. `correction` [E] is added to scores for
    choosing only. Shares are divided by their sum when `normalize`, times `scale`, times `expert_scale` [E] of the
    expert. `over_chosen`: the softmax runs over the chosen logits alone.
    """
    rows, experts = logits.shape
    threads = min(MOST_THREADS, LANES * parts(experts, LANES))
    chosen, shares = ROUTE(
        [
            logits,
            logits if correction is None else correction,
            logits if expert_scale is None else expert_scale,
            mx.array(scale, mx.float32),
        ],
        grid=(threads * rows, 1, 1),
        threadgroup=(threads, 1, 1),
        shapes=[(rows, slots)] * 2,
        dtypes=[mx.int32, mx.float32],
        EXPERTS=experts,
        SLOTS=slots,
        THREADS=threads,
        SIGMOID=scoring == "sigmoid",
        OVER_CHOSEN=over_chosen,
        NORMALIZED=normalize,
        CORRECTED=correction is not None,
        SCALED=expert_scale is not None,
    )
    return chosen, shares
