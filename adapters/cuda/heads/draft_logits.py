"""The part of the target's head that drafts are taken from: logits of some ids, over the same packed matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.blocks.embedding import PATH
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.domain.families.plans import Head

_TILE = 16  # outputs of a packed matrix that lie together


class DraftLogits:
    """Logits over the ids in `spans` (half-open; none: all). `ids` int32 are the tokens they belong to; None: all."""

    def __init__(self, assembly: Assembly, plan: Head, spans: Sequence[tuple[int, int]]) -> None:
        self._softcap = plan.softcap
        product: Any = assembly.products.linear(PATH if plan.tied else "head", wide=True, prompts=False)
        inside = [(start, min(stop, plan.vocabulary)) for start, stop in spans if start < plan.vocabulary]
        self.ids: Tensor | None = None
        self.count = plan.vocabulary
        if inside and hasattr(product, "among") and all(start % _TILE == 0 for start, _ in inside):
            product = product.among(inside)
            parts = [torch.arange(start, stop, dtype=torch.int32) for start, stop in inside]
            self.ids = torch.cat(parts).to(assembly.device)
            self.count = len(self.ids)
        self._product = product

    def decode(self, rows: Tensor) -> Tensor:
        """Logits float32 [R, ids] of rows [R, D]."""
        logits: Tensor = self._product.decode(rows)
        return torch.tanh(logits / self._softcap) * self._softcap if self._softcap else logits
