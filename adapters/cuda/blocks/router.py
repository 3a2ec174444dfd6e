"""The choice of experts: float32 logits, scores, the best of them, and their weights, all on the device.

A row's choice hangs on that row alone, and of equal scores the lower id comes first. A prompt's logits are made in
tiles, in an order of additions of their own.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import Router
from tensorfold.kernels.triton.routers import choose_rows, score_rows

Tensor = Any


class RouterBlock:
    """Chooses `plan.chosen` of `plan.experts` for every row, and `folded` entries behind them for all rows."""

    def __init__(self, assembly: Assembly, plan: Router, path: str, folded: int = 0) -> None:
        if plan.from_residual or plan.input_norm or plan.input_scale or plan.expert_scale or plan.input_factor != 1.0:
            raise RefusedError(f"{path} reads or scales its rows in a way that the CUDA backend cannot build yet.")
        self._plan, self._products = plan, assembly.products
        self._slots = plan.chosen + folded
        self._weight = assembly.products.plain(path)
        self._correction: Tensor | None = None
        if plan.correction:
            correction = assembly.weights.floats(f"{path}.correction")
            self._correction = torch.from_numpy(correction).to(assembly.device).contiguous()

    def decode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Ids int32 [R, slots], best first, and their weights float32 [R, slots]."""
        logits = torch.empty((len(x), self._plan.experts), dtype=torch.float32, device=x.device)
        score_rows(x, self._weight, logits)
        return self._chosen(logits)

    def prompt(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The same for rows of a prompt."""
        if self._weight.dtype != x.dtype:
            return self.decode(x)
        return self._chosen(self._products.multiply_plain(x, self._weight))

    def _chosen(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        plan = self._plan
        ids = torch.empty((len(logits), self._slots), dtype=torch.int32, device=logits.device)
        weights = torch.empty((len(logits), self._slots), dtype=torch.float32, device=logits.device)
        choose_rows(
            logits, self._correction, ids, weights, plan.scale, chosen=plan.chosen, scoring=plan.scoring,
            over_chosen=plan.over_chosen, normalize=plan.normalize,
        )  # fmt: skip
        return ids, weights
