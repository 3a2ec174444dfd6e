"""The selector of a block drafter: the best candidates of every position, and scores of neighbouring pairs."""

from __future__ import annotations

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.heads.draft_logits import DraftLogits
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.application.ports.target_model import Lattice
from tensorfold.domain.families.plans import DFlashDrafter
from tensorfold.kernels.triton.draft_candidates import best_candidates, score_pairs

Numbers = NDArray[np.float32]


class Selector:
    """Candidates by logit; the pair (p, c) behind hidden row h adds the sum over r of pred[p, r] h[r] succ[c, r]."""

    def __init__(self, assembly: Assembly, plan: DFlashDrafter, logits: DraftLogits) -> None:
        self._logits = logits
        self.candidates = min(plan.candidates, logits.count)
        self._rank = plan.selector_rank
        if self._rank:
            self._projection = assembly.products.linear("selector.projection", prompts=False)
            self._predecessor, self._successor = (
                torch.from_numpy(assembly.weights.floats(f"selector.{name}")).to(assembly.dtype).to(assembly.device)
                for name in ("predecessor", "successor")
            )

    @property
    def numbers(self) -> int:
        """What is told of one position: ids, logits, and the pairs of each with those before it."""
        return self.candidates * (2 + self.candidates)

    def tell(self, hidden: Tensor, pending: Tensor, blocks: int, told: Tensor) -> None:
        """`told` float32 [B, L - 1, numbers] of `hidden` rows [B * (L - 1), D] behind `pending` int32 [B].

        Ids are whole numbers that float32 holds exactly. The first position's pairs are k times those of `pending`;
        without pairs `told` stays as it is behind the logits.
        """
        told = told.view(len(hidden), self.numbers)
        best = pending.new_empty((len(hidden), self.candidates))
        best_candidates(self._logits.decode(hidden), self._logits.ids, best, told)
        if self._rank:
            mixed = self._projection.decode(hidden)
            score_pairs(best, pending, mixed, self._predecessor, self._successor, len(hidden) // blocks, told)

    def lattice(self, told: Numbers, depth: int) -> Lattice:
        """The lattice of one block's first `depth` positions."""
        count, numbers = self.candidates, told[:depth].astype(np.float64)
        ids = numbers[:, :count].astype(np.int64)
        pairs = numbers[:, 2 * count :].reshape(-1, count, count)
        return Lattice(tuple(ids), tuple(numbers[:, count : 2 * count]), (pairs[0, :1], *pairs[1:]))
