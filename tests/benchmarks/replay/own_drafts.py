"""A stream's own drafts: a chain of three that lands by chance, the same at each place of a reply in every run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorfold.domain.drafting.sources import Proposal

LANDING = (0.75, 0.65, 0.55)
"""The chance of each draft to land when those before it did."""
CHANCES = tuple(float(chance) for chance in np.cumprod(LANDING))


class OwnDrafts:
    """Three drafts of `reply` at any place of it; a draft source of the stream whose prompt has `prompt` ids."""

    name = "head"

    def __init__(self, reply: Sequence[int], vocabulary: int, seed: int, prompt: int = 0) -> None:
        self._reply = reply
        self._prompt = prompt
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
        return Proposal(self.name, tokens, CHANCES[:count])

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """Drafts behind all of `tokens`."""
        return self.at(len(tokens) - self._prompt, limit)

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Nothing is learned."""
