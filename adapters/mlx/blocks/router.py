"""The choice of experts: float32 logits, scores, the best of them, and their weights, all on the device.

A row's choice hangs on that row alone, and of equal scores the lower id comes first whatever sort a device has.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.norm import norm_block
from tensorfold.domain.families.ops import Router

A = TypeVar("A")
_LEAST_SUM = 1e-20
"""Added to the sum of the chosen scores, as published models of sigmoid scores have it; it moves no softmax's sum."""


class RouterBlock(Generic[A]):
    """Chooses `plan.chosen` of `plan.experts` for every row."""

    def __init__(self, assembly: Assembly[A], plan: Router, path: str) -> None:
        ops, weights = assembly.ops, assembly.weights
        self._ops, self._plan = ops, plan
        self._norm = norm_block(assembly, plan.input_norm, f"{path}.norm")
        self._input_scale: Any = plan.input_factor
        if plan.input_scale:
            self._input_scale = ops.float32(weights.floats(f"{path}.input_scale") * plan.input_factor)
        self._logits = ops.float32_product([weights.matrix(path)])
        self._correction: Any = ops.float32(weights.floats(f"{path}.correction")) if plan.correction else None
        self._expert_scale: Any = ops.float32(weights.floats(f"{path}.expert_scale")) if plan.expert_scale else None

    def __call__(self, rows: A, residual: A) -> tuple[A, A]:
        """Ids [R, chosen], best first, and their weights [R, chosen] in float32."""
        plan, xp = self._plan, self._ops.xp
        logits: Any = self._logits(self._read(residual if plan.from_residual else rows))
        scores: Any = self._ops.softmax(logits) if plan.scoring == "softmax" else self._ops.sigmoid(logits)
        ids = best(xp, scores if self._correction is None else scores + self._correction, plan.chosen)
        weights = xp.take_along_axis(logits if plan.over_chosen else scores, ids, axis=-1)
        if plan.over_chosen:
            weights = self._ops.softmax(weights)
        if plan.normalize:
            weights = weights / (weights.sum(axis=-1, keepdims=True) + _LEAST_SUM)
        if plan.scale != 1.0:
            weights = weights * plan.scale
        return ids, weights if self._expert_scale is None else weights * self._expert_scale[ids]

    def _read(self, rows: A) -> A:
        """What the logits are made of, in float32."""
        wide: Any = self._ops.wide(rows)
        if self._norm is not None:
            wide = self._norm(wide)
        made: A = wide if self._plan.input_factor == 1.0 and not self._plan.input_scale else wide * self._input_scale
        return made


def best(xp: Any, scores: Any, count: int) -> Any:
    """Ids [R, count] of the largest float32 `scores` [R, E], largest first; of equal ones the lower id comes first.

    Scores and ids make integers no two of which are equal, so it does not matter what a sort does with equal ones.
    """
    bits = (scores + 0.0).view(xp.int32)  # -0 becomes 0
    ascending = xp.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(xp.int64)
    experts = scores.shape[-1]
    return xp.argsort(xp.arange(experts) - ascending * experts, axis=-1)[:, :count]
