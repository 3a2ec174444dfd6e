"""The selector of a block drafter: the best candidates of every position, and scores of neighbouring pairs."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.heads.draft_rows import DraftRows
from tensorfold.application.ports.target_model import Lattice
from tensorfold.domain.families.plans import DFlashDrafter

A = TypeVar("A")
Floats = NDArray[np.float64]


class Selector(Generic[A]):
    """Candidates by logit; the pair (p, c) behind hidden row h adds the sum over r of pred[p, r] h[r] succ[c, r]."""

    def __init__(self, assembly: Assembly[A], plan: DFlashDrafter) -> None:
        self._ops, self._plan = assembly.ops, plan
        if plan.selector_rank:
            self._projection = LinearBlock(assembly, ("selector.projection",))
            self._predecessor = assembly.weights.floats("selector.predecessor")
            self._successor = assembly.weights.floats("selector.successor")

    def lattice(self, rows: DraftRows[A], hidden: A, pending: int) -> Lattice:
        """The candidates of each hidden row [n, D], on the host."""
        logits = rows.logits(hidden)
        most = min(self._plan.candidates, logits.shape[1])
        best = np.argpartition(-logits, most - 1, axis=1)[:, :most]
        scores = np.take_along_axis(logits, best, axis=1).astype(np.float64)
        ids = rows.ids[best]
        return Lattice(tuple(ids), tuple(scores), self._pairs(ids, hidden, pending))

    def _pairs(self, ids: NDArray[np.int64], hidden: A, pending: int) -> tuple[Floats, ...]:
        before = [np.asarray([pending]), *ids[:-1]]
        if not self._plan.selector_rank:
            return tuple(np.zeros((len(left), len(right))) for left, right in zip(before, ids, strict=True))
        mixed = self._ops.host(self._projection(hidden)).astype(np.float64)
        return tuple(
            (self._predecessor[left] * row) @ self._successor[right].T
            for left, right, row in zip(before, ids, mixed, strict=True)
        )
