"""Rows to logits, for the rows that are drawn and no others: a prompt's rows have none."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.blocks.embedding import PATH, EmbeddingBlock
from tensorfold.domain.families.plans import Head

Tensor = Any


class HeadBlock:
    """A product over the vocabulary in float32, capped where the plan says so; a tied one reads the table's blocks."""

    def __init__(self, assembly: Assembly, plan: Head, embedding: EmbeddingBlock | None = None) -> None:
        self._softcap = plan.softcap
        self._product = assembly.products.linear(PATH if plan.tied else "head", wide=True, prompts=False)

    def decode(self, rows: Tensor) -> Tensor:
        """Logits float32 [R, V] of rows [R, D]."""
        logits = self._product.decode(rows)
        return torch.tanh(logits / self._softcap) * self._softcap if self._softcap else logits
