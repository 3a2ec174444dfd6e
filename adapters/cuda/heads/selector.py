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
        """`told` float32 [B, L - 1, numbers] of `hidden` rows [B * (L - 1), D] behind `pending` int64 [B].

        Ids are whole numbers that float32 holds exactly. The first position's pairs are k times those of `pending`.
        """
        count = self.candidates
        scores, best = torch.topk(self._logits.decode(hidden), count, dim=1)
        ids = best if self._logits.ids is None else self._logits.ids[best].long()
        ids = ids.view(blocks, -1, count)
        told[..., :count] = ids.float()
        told[..., count : 2 * count] = scores.view(blocks, -1, count)
        if not self._rank:
            told[..., 2 * count :] = 0.0
            return
        before = torch.cat([pending[:, None, None].expand(-1, 1, count), ids[:, :-1]], dim=1)
        mixed = self._projection.decode(hidden).float().view(blocks, -1, 1, self._rank)
        left = self._predecessor[before].float() * mixed
        right = self._successor[ids].float()
        pairs = (left[:, :, :, None, :] * right[:, :, None, :, :]).sum(-1)
        told[..., 2 * count :] = pairs.flatten(2)

    def lattice(self, told: Numbers, depth: int) -> Lattice:
        """The lattice of one block's first `depth` positions."""
        count, numbers = self.candidates, told[:depth].astype(np.float64)
        ids = numbers[:, :count].astype(np.int64)
        pairs = numbers[:, 2 * count :].reshape(-1, count, count)
        return Lattice(tuple(ids), tuple(numbers[:, count : 2 * count]), (pairs[0, :1], *pairs[1:]))
