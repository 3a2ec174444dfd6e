"""A stream that holds a lane: the domain's stream beside its lane, its draft sources and what is counted for its reply.

Owned by the engine thread. Nothing here decides a token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import Lane, Span
from tensorfold.application.prompt_cache import PromptFill
from tensorfold.domain.drafting.depth import DepthPolicy
from tensorfold.domain.drafting.lattice import Lattice
from tensorfold.domain.drafting.sources import DraftSource, Proposal
from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.streams import Stream


class Live:
    """One stream in the engine; `index` names it to the policies, `slices` are those of its prompt still to absorb.

    `fill` is its prompt's way into the lane, `cached` the ids of it that a kept state spared it when it got its first.

    `head` is what the draft head proposed for the round at hand, out of `lattice` where it gave one; `depth` is what
    was learned of the head in this stream. A stream that gave its lane up is `dropped`: it takes no round until its
    prompt, and its reply up to `replay_to`, were read again. `forced` once a gate has set a token of the reply, which
    draws would not give again.
    `began` is the reply's constraint at its start, `again` where reading the reply again stands. `reach`: positions
    that rows of its lane were ever launched at.
    """

    __slots__ = (
        "again",
        "audit",
        "began",
        "cached",
        "depth",
        "drafts",
        "dropped",
        "fill",
        "filled",
        "forced",
        "head",
        "ids",
        "index",
        "lane",
        "lattice",
        "reach",
        "replay_to",
        "rounds",
        "slices",
        "sources",
        "stream",
    )

    def __init__(
        self, index: int, stream: Stream, lane: Lane, fill: PromptFill, sources: Sequence[DraftSource]
    ) -> None:
        self.index = index
        self.stream = stream
        self.lane = lane
        self.sources = tuple(sources)
        self.audit = False
        self.began: Constraint | None = stream.constraint
        self.again: Constraint | None = self.began
        self.ids: NDArray[np.int64] = np.asarray(stream.prompt, dtype=np.int64)
        self.take(fill)
        self.cached = fill.resumed
        self.replay_to = 0
        self.dropped = False
        self.forced = False
        self.rounds = 0
        self.head: Proposal | None = None
        self.lattice: Lattice | None = None
        self.depth: DepthPolicy | None = None
        self.drafts: dict[str, list[int]] = {}

    def take(self, fill: PromptFill) -> None:
        """Go on with a prompt's way into a new lane."""
        self.fill = fill
        self.filled = self.reach = fill.filled
        self.slices: Iterator[Span] = fill.spans()

    @property
    def to_fill(self) -> int:
        """Positions still to absorb before a round: the prompt's, whose last id is left pending, or a reply's too."""
        return max(len(self.stream.prompt) - 1, self.replay_to) - self.filled

    @property
    def held(self) -> int:
        """Tokens in the lane, or that it had when it was given up."""
        return max(self.filled, self.stream.absorbed)

    @property
    def behind(self) -> int:
        """Those of them that the lane lacks still, since they are being read again."""
        return self.held - self.filled if self.to_fill > 0 and not self.dropped else 0

    @property
    def spare(self) -> int:
        """Positions behind what the lane holds that its buffers may have been made for."""
        return 0 if self.dropped else max(0, self.reach - self.held + self.behind)

    def count(self, source: str, drafted: int, kept: int) -> None:
        """Add one verified window's drafts."""
        pair = self.drafts.setdefault(source, [0, 0])
        pair[0] += drafted
        pair[1] += kept
