"""Draft sources that are right as often as a test wants: an oracle is given the reply, and told how often to use it.

None of them knows a model, and whatever they propose, no token may change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorfold.domain.drafting.sources import CHAINS, DraftSource, Proposal, Widths


class FakeSources:
    """A `DraftSourceFactory` from a function of the prompt; `opened` keeps the sources made."""

    def __init__(self, make: Callable[[tuple[int, ...]], DraftSource]) -> None:
        self._make = make
        self.opened: list[DraftSource] = []

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> DraftSource:
        """What the function makes."""
        source = self._make(tuple(prompt))
        self.opened.append(source)
        return source


class SilentSource:
    """Proposes nothing. The base of the others: `observed` keeps (source, drafted, kept, tokens so far)."""

    def __init__(self, name: str = "silent") -> None:
        self.name = name
        self.observed: list[tuple[str | None, int, int, int]] = []

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """Nothing."""
        return None

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Remembered."""
        self.observed.append((source, drafted, kept, len(tokens)))


class KnowingSource(SilentSource):
    """Knows the serial `reply` to a prompt of `prompt` ids: the base of sources that are right or wrong on purpose."""

    def __init__(self, prompt: int, reply: Sequence[int], vocabulary: int, name: str) -> None:
        super().__init__(name)
        self._prompt = prompt
        self._reply = tuple(reply)
        self._vocabulary = vocabulary

    def ahead(self, tokens: Sequence[int], limit: int) -> tuple[int, ...]:
        """The right drafts, as far as they are known."""
        at = len(tokens) - self._prompt
        return self._reply[at : at + max(limit, 0)]

    def other(self, token: int, shift: int = 0) -> int:
        """An id that is not `token`; different for different small shifts."""
        return (token + 1 + shift) % self._vocabulary


class OracleSource(KnowingSource):
    """Right at depth d with chance `hits[d]` (the last one for deeper drafts), by a seeded die.

    `tree` puts each draft between two wrong siblings, as far as the limit allows.
    """

    def __init__(
        self,
        prompt: int,
        reply: Sequence[int],
        vocabulary: int,
        *,
        hits: Sequence[float] = (0.9, 0.8, 0.7),
        seed: int = 0,
        tree: bool = False,
        name: str = "oracle",
    ) -> None:
        super().__init__(prompt, reply, vocabulary, name)
        self._hits = tuple(hits)
        self._random = random.Random(seed * 1_000_003 + prompt)
        self._tree = tree

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """Right and wrong drafts by chance."""
        right = self.ahead(tokens, limit)
        if not right:
            return None
        drafts, chances, chance = [], [], 1.0
        for depth, token in enumerate(right):
            hit = self._hits[min(depth, len(self._hits) - 1)]
            chance *= hit
            drafts.append(token if self._random.random() < hit else self.other(token))
            chances.append(chance)
        if self._tree:
            return self._branched(drafts, chances, limit)
        return Proposal(self.name, tuple(drafts), tuple(chances))

    def _branched(self, drafts: Sequence[int], chances: Sequence[float], limit: int) -> Proposal:
        tokens: list[int] = []
        parents: list[int] = []
        scores: list[float] = []
        row = 0
        for depth, (token, chance) in enumerate(zip(drafts, chances, strict=True)):
            around = [self.other(token, 1), token, self.other(token, 2)]
            if depth % 2:
                around = [token, self.other(token, 1)]
            behind = row
            for sibling in around:
                if len(tokens) == limit:
                    return Proposal(self.name, tuple(tokens), tuple(scores), tuple(parents))
                tokens.append(sibling)
                parents.append(behind)
                scores.append(chance if sibling == token else 0.01)
                if sibling == token:
                    row = len(tokens)
        return Proposal(self.name, tuple(tokens), tuple(scores), tuple(parents))


class SlowSource(SilentSource):
    """Takes `seconds` of a passed-in sleep before another source's proposal."""

    def __init__(self, inner: DraftSource, sleep: Callable[[float], object], seconds: float) -> None:
        super().__init__(inner.name)
        self._inner = inner
        self._sleep = sleep
        self._seconds = seconds

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """Late."""
        self._sleep(self._seconds)
        return self._inner.propose(tokens, limit)

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Passed on."""
        super().observe(source, drafted, kept, tokens)
        self._inner.observe(source, drafted, kept, tokens)


def oracle_factory(replies: Mapping[tuple[int, ...], Sequence[int]], vocabulary: int, **settings: Any) -> FakeSources:
    """Oracles for streams whose prompts are known; silent for others."""
    return FakeSources(
        lambda prompt: (
            OracleSource(len(prompt), replies[prompt], vocabulary, **settings) if prompt in replies else SilentSource()
        )
    )
