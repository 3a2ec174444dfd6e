"""Draft heads for the hash model: a chain, or a lattice, that is right at each depth with a chosen chance.

A head knows the law, so what is right and wrong follows from a lane's state and a salt alone. Knows no lane.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tensorfold.application.ports.target_model import Chain, HeadLimits, Lattice
from tensorfold.domain.sampling import Sampling, draw
from tests.fakes.hash_law import HashLaw, absorb, mix


@dataclass(frozen=True, slots=True)
class HashHead:
    """`hits[d]` is the chance that the draft at depth d is the target's own token, given those before it were.

    A head never drafts deeper than `hits` is long.
    """

    hits: tuple[float, ...] = (0.9, 0.8, 0.7)
    salt: int = 0x51ED

    @property
    def limits(self) -> HeadLimits:
        """A chain of as many drafts as there are hits."""
        return HeadLimits("chain", len(self.hits), len(self.hits), title="hash head")

    def propose(self, law: HashLaw, state: int, pending: int, position: int, depth: int, sampling: Sampling) -> Chain:
        """Drafts behind `pending`, which stands at `position`; `state` is that of everything before it."""
        tokens: list[int] = []
        last = pending
        for level in range(min(depth, len(self.hits))):
            state = absorb(state, last)
            last = drawn(law, state, last, position + 1 + level, sampling)
            if mix(state ^ self.salt) >= self.hits[level] * 2**64:
                last = (last + 1) % law.vocabulary
            tokens.append(last)
        return Chain(tuple(tokens), self.hits[: len(tokens)])


@dataclass(frozen=True, slots=True)
class HashDrafter:
    """Answers with a lattice of `width` candidates a depth.

    The target's own token is a candidate of each depth, as long as the path to it held the target's own, and leads the
    others by logits with the chance `hits[d]`; otherwise another one leads. Pairs are noise of a known size.
    """

    hits: tuple[float, ...] = (0.8,) * 7
    width: int = 6
    lead: float = 3.0
    salt: int = 0xD1F5

    @property
    def limits(self) -> HeadLimits:
        """A block of as many drafts as there are hits."""
        return HeadLimits("lattice", len(self.hits), len(self.hits), title="hash drafter")

    def propose(self, law: HashLaw, state: int, pending: int, position: int, depth: int, sampling: Sampling) -> Lattice:
        """Candidates behind `pending`, which stands at `position`; `state` is that of everything before it."""
        ids, scores, pairs = [], [], []
        last, before = pending, 1
        count = min(self.width, law.vocabulary)
        for level in range(min(depth, len(self.hits))):
            state = absorb(state, last)
            last = drawn(law, state, last, position + 1 + level, sampling)
            chosen = (last + np.arange(count, dtype=np.int64) * (1 + state % 3)) % law.vocabulary
            chosen = np.unique(chosen)
            noise = np.random.default_rng(state ^ self.salt)
            score = noise.normal(size=len(chosen))
            right = mix(state ^ self.salt) < self.hits[level] * 2**64
            score[np.flatnonzero(chosen == last if right else chosen != last)[0]] += self.lead
            ids.append(chosen)
            scores.append(score)
            pairs.append(noise.normal(scale=0.3, size=(before, len(chosen))))
            before = len(chosen)
        return Lattice(tuple(ids), tuple(scores), tuple(pairs))


AnyHead = HashHead | HashDrafter


def random_head(rng: random.Random) -> AnyHead:
    """A head of either kind, of any depth to 15, as often right as a good one, a poor one or one that never is."""
    most = rng.choice((0.0, 0.6, 0.9, 1.0))
    hits = tuple(most * rng.choice((0.7, 0.9, 1.0)) for _ in range(rng.randrange(1, 16)))
    if rng.random() < 0.5:
        return HashHead(hits, rng.getrandbits(64))
    return HashDrafter(hits, rng.randrange(1, 17), rng.choice((0.0, 2.0, 8.0)), rng.getrandbits(64))


def drawn(law: HashLaw, state: int, token: int, position: int, sampling: Sampling) -> int:
    """The token that the target draws at `position` from a row of `state`, whose own token is `token`."""
    return draw(law.logits(np.array([state], dtype=np.uint64), [token])[0], position, sampling)
