"""Choosing experts from a row's logits, in float32, ties to the lower id.

One simdgroup makes one row. An expert's rank is the number of experts before it, by score and then by id: nothing is
sorted, and equal scores cannot change places. Logits that are not numbers still give valid ids.
"""

from __future__ import annotations

from typing import Literal

import mlx.core as mx

from tensorfold.kernels.metal.activations import ACTIVATIONS
from tensorfold.kernels.metal.launch import LANES, MetalKernel

ROUTE = MetalKernel(
    name="route",
    inputs=("logits", "correction", "expert_scale", "scale"),
    outputs=("chosen", "shares"),
    header=ACTIVATIONS,
    body="""
  threadgroup float scores[EXPERTS];
  threadgroup float ranked[EXPERTS];
  threadgroup int slots[SLOTS];
  const int lane = int(thread_index_in_simdgroup), row = int(threadgroup_position_in_grid.x);
  float top = -INFINITY;
  for (int e = lane; e < EXPERTS; e += 32) top = max(top, float(logits[row * EXPERTS + e]));
  top = simd_max(top);
  float sum = 0.0f;
  for (int e = lane; e < EXPERTS; e += 32) {
    const float logit = float(logits[row * EXPERTS + e]);
    scores[e] = SIGMOID ? sigmoid_of(logit) : OVER_CHOSEN ? logit : metal::precise::exp(logit - top);
    sum = sum + scores[e];
  }
  sum = simd_sum(sum);
  for (int e = lane; e < EXPERTS; e += 32) {
    if (!SIGMOID && !OVER_CHOSEN) scores[e] = scores[e] / sum;
    ranked[e] = CORRECTED ? scores[e] + float(correction[e]) : scores[e];
  }
  if (lane < SLOTS) slots[lane] = lane;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (int e = lane; e < EXPERTS; e += 32) {
    int rank = 0;
    for (int other = 0; other < EXPERTS; other++) {
      rank += ranked[other] > ranked[e] || (ranked[other] == ranked[e] && other < e) ? 1 : 0;
    }
    if (rank < SLOTS && !isnan(ranked[e])) slots[rank] = e;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  if (lane >= SLOTS) return;
  const int expert = slots[lane];
  float share = OVER_CHOSEN ? metal::precise::exp(scores[expert] - scores[slots[0]]) : scores[expert];
  float total = 0.0f;
  for (int slot = 0; slot < SLOTS; slot++) {
    const float theirs = scores[slots[slot]];
    total = total + (OVER_CHOSEN ? metal::precise::exp(theirs - scores[slots[0]]) : theirs);
  }
  if (NORMALIZED || OVER_CHOSEN) share = share / (SIGMOID ? total + 1e-20f : total);
  share = share * scale;
  if (SCALED) share = share * float(expert_scale[expert]);
  chosen[row * SLOTS + lane] = expert;
  shares[row * SLOTS + lane] = share;
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

    `logits` [R, E], E at most 4,096, best in float32; `slots` at most 32 and E. `correction` [E] is added to scores for
    choosing only. Shares are divided by their sum when `normalize`, times `scale`, times `expert_scale` [E] of the
    expert. `over_chosen`: the softmax runs over the chosen logits alone.
    """
    rows, experts = logits.shape
    chosen, shares = ROUTE(
        [
            logits,
            logits if correction is None else correction,
            logits if expert_scale is None else expert_scale,
            mx.array(scale, mx.float32),
        ],
        grid=(LANES * rows, 1, 1),
        threadgroup=(LANES, 1, 1),
        shapes=[(rows, slots)] * 2,
        dtypes=[mx.int32, mx.float32],
        EXPERTS=experts,
        SLOTS=slots,
        SIGMOID=scoring == "sigmoid",
        OVER_CHOSEN=over_chosen,
        NORMALIZED=normalize,
        CORRECTED=correction is not None,
        SCALED=expert_scale is not None,
    )
    return chosen, shares
