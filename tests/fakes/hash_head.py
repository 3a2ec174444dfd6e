"""A draft head for the hash model: a chain that is right at each depth with a chosen chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensorfold.application.ports.target_model import Chain
from tensorfold.domain.sampling import Sampling, draw
from tests.fakes.hash_law import HashLaw, absorb, mix


@dataclass(frozen=True, slots=True)
class HashHead:
    """`hits[d]` is the chance that the draft at depth d is the target's own token, given those before it were.

    What is right and wrong follows from the state and `salt` alone. A head never drafts deeper than `hits` is long.
    """

    hits: tuple[float, ...] = (0.9, 0.8, 0.7)
    salt: int = 0x51ED

    def propose(self, law: HashLaw, state: int, pending: int, position: int, depth: int, sampling: Sampling) -> Chain:
        """Drafts behind `pending`, the token drawn at `position` + 1 from a row of `state` at `position`."""
        tokens: list[int] = []
        last = pending
        for level in range(min(depth, len(self.hits))):
            state = absorb(state, last)
            logits = law.logits(np.array([state], dtype=np.uint64), [last])[0]
            token = draw(logits, position + 2 + level, sampling)
            if mix(state ^ self.salt) >= self.hits[level] * 2**64:
                token = (token + 1) % law.vocabulary
            tokens.append(token)
            last = token
        return Chain(tuple(tokens), self.hits[: len(tokens)])
