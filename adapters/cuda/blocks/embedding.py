"""Token ids to rows."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.domain.families.plans import Embedding

Tensor = Any
PATH = "embedding"


class EmbeddingBlock:
    """Looks rows up in the table and scales them; rows of a round and of a prompt are the same."""

    def __init__(self, assembly: Assembly, plan: Embedding) -> None:
        self._dtype = assembly.dtype
        self._look_up = assembly.products.embedding(PATH)
        # The factor is rounded as the rows are; a row is multiplied in float32.
        self._multiplier = float(torch.tensor(plan.multiplier, dtype=assembly.dtype))

    def decode(self, ids: Tensor) -> Tensor:
        """Rows [R, width] of ids int32 [R]."""
        rows = self._look_up(ids, self._dtype)
        return rows if self._multiplier == 1.0 else rows * self._multiplier

    def prompt(self, ids: Tensor) -> Tensor:
        """The same."""
        return self.decode(ids)
