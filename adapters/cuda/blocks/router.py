"""The choice of experts: float32 logits, scores, the best of them, and their weights, all on the device.

A row's choice hangs on that row alone, and of equal scores the lower id comes first. A prompt's logits are made in
tiles, in an order of additions of their own.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.experts import LISTS_APART, Choice, new_lists
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import Router
from tensorfold.kernels.triton.expert_items import MOST_PAIRS, TOGETHER, choose_and_list
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

    def decode(self, x: Tensor) -> Choice:
        """What a round's rows choose; they bring the lists of the grouped products along."""
        few = min(len(x), MOST_PAIRS // self._slots) <= TOGETHER
        return self._chosen(self._scored(x), together=few and self._plan.scoring == "sigmoid")

    def prompt(self, x: Tensor) -> Choice:
        """What a prompt's rows choose."""
        if self._weight.dtype != x.dtype:
            return self._chosen(self._scored(x))
        return self._chosen(self._products.multiply_plain(x, self._weight))

    def _scored(self, x: Tensor) -> Tensor:
        logits = torch.empty((len(x), self._plan.experts), dtype=torch.float32, device=x.device)
        score_rows(x, self._weight, logits)
        return logits

    def _chosen(self, logits: Tensor, *, together: bool = False) -> Choice:
        plan = self._plan
        ids = torch.empty((len(logits), self._slots), dtype=torch.int32, device=logits.device)
        weights = torch.empty((len(logits), self._slots), dtype=torch.float32, device=logits.device)
        if together and not plan.over_chosen:
            lists = new_lists(logits.device, -(-len(logits) // (MOST_PAIRS // self._slots)))
            choose_and_list(
                logits, self._correction, ids, weights, plan.scale, lists[0], chosen=plan.chosen,
                normalize=plan.normalize, apart=LISTS_APART,
            )  # fmt: skip
            return Choice(ids, weights, lists)
        choose_rows(
            logits, self._correction, ids, weights, plan.scale, chosen=plan.chosen, scoring=plan.scoring,
            over_chosen=plan.over_chosen, normalize=plan.normalize,
        )  # fmt: skip
        return Choice(ids, weights)
