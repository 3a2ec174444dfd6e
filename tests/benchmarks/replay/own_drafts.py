"""A stream's own drafts: a chain of three that lands by chance, the same at each place of a reply in every run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorfold.domain.drafting.sources import Proposal

LANDING = (0.75, 0.65, 0.55)
"""The chance of each draft to land when those before it did."""
CHANCES = tuple(float(chance) for chance in np.cumprod(LANDING))


class OwnDrafts:
    """Three drafts of `reply` at any place of it."""

    def __init__(self, reply: Sequence[int], vocabulary: int, seed: int) -> None:
        self._reply = reply
        self._vocabulary = vocabulary
        lands = np.random.default_rng(seed).random((len(reply), len(LANDING))) < LANDING
        self._landed = np.logical_and.accumulate(lands, axis=1).sum(axis=1).tolist()

    def at(self, place: int, limit: int) -> Proposal | None:
        """Drafts for the ids of the reply from `place` on; None where a stream has room for none."""
        count = min(len(LANDING), limit, len(self._reply) - place)
        if count < 1:
            return None
        right = self._landed[place]
        tokens = tuple(
            token if depth < right else (token + 1) % self._vocabulary
            for depth, token in enumerate(self._reply[place : place + count])
        )
        return Proposal("head", tokens, CHANCES[:count])
