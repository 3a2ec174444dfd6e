"""What a draft source is: it looks at a stream's tokens and proposes what may come next.

A source knows its own stream only: no other stream, no model, no clock. It may be wrong, slow or broken and no token
changes, because every draft is verified; `sound` is the gate that turns whatever came back into rows that can be run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

OWN_CONTEXT = "copy"
"""Name of the source that copies from the stream's own prompt and reply; it wins ties against every other source."""

JOINED = "+"
"""Between the names of the sources of a merged proposal, as in `copy+head`."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts of one source, or of several merged ones, for one stream and one round.

    `chances[i]` is the estimated unconditional probability that draft i is kept, from 0 to 1. `parents` None means a
    chain; otherwise `parents[i]` is the window row that draft i follows (0: the pending token, k + 1: draft k), and
    every parent stands before its child. So any prefix of a proposal is a proposal. A `graft` may share a tree with
    other proposals but never takes the place of one.
    """

    source: str
    tokens: tuple[int, ...]
    chances: tuple[float, ...]
    parents: tuple[int, ...] | None = None
    graft: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def expected(self) -> float:
        """Drafts expected to be kept when every row is granted."""
        return sum(self.chances)

    def first(self, count: int) -> Proposal:
        """The first `count` drafts (`count` >= 0), which is what remains when fewer rows are granted."""
        if count >= len(self.tokens):
            return self
        parents = None if self.parents is None else self.parents[:count]
        return Proposal(self.source, self.tokens[:count], self.chances[:count], parents, self.graft)

    def only(self, kept: Sequence[int]) -> Proposal | None:
        """The drafts of these indices, ascending, each with its parent among them; None when there are none."""
        if not kept:
            return None
        if len(kept) == len(self.tokens):
            return self
        parents = self.parents
        if parents is not None:
            rows = {0: 0} | {index + 1: row for row, index in enumerate(kept, start=1)}
            parents = tuple(rows[parents[index]] for index in kept)
        tokens, chances = tuple(self.tokens[i] for i in kept), tuple(self.chances[i] for i in kept)
        return Proposal(self.source, tokens, chances, parents, self.graft)


@dataclass(frozen=True, slots=True)
class Widths:
    """The most rows, the pending one included, that the model verifies at once: in a chain, and in a tree (1: none)."""

    chain: int
    tree: int = 1


CHAINS = Widths(128)
"""Any chain of a practical width, and no trees."""


class DraftSource(Protocol):
    """Proposes drafts for one stream. Called by one thread, in turn: `propose`, the round, `observe`.

    A stream may have several sources. Each is asked every round in which it may draft and told the outcome of every
    round, so that it can count rounds and learn from tokens that it did not propose.
    """

    @property
    def name(self) -> str:
        """The source's name in proposals, counters and reports; without `+`."""
        ...

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """At most `limit` drafts to follow `tokens` (prompt and reply so far; append-only between calls), or None."""
        ...

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """The stream's round is over.

        `source` names whose drafts were verified (None: nobody's; names joined by `+`: a merged proposal), `drafted`
        of them, of which `kept` were kept; `tokens` is prompt and reply now.
        """
        ...


class DraftSourceFactory(Protocol):
    """Makes one kind of source for each new stream; what is learned across streams lives here."""

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> DraftSource:
        """A source for a stream that begins with `prompt`; cheap, since a stream may never be allowed to draft.

        `widths` are what the model verifies: a source need not propose what would be cut.
        """
        ...


def took_part(source: str, verified: str | None) -> bool:
    """Whether `source` is, or is one of, the `verified` source names."""
    return verified is not None and (verified == source or source in verified.split(JOINED))


def sound(proposal: Proposal, vocabulary: int, limit: int) -> Proposal | None:
    """The longest prefix of `proposal` that can be run, of at most `limit` drafts; None when nothing is left.

    It ends before an id outside 0 .. `vocabulary` - 1, before a row without a chance, and before a row whose parent
    does not stand before it. Chances are brought into 0 .. 1, what is not a number becoming 0.
    """
    proposal = proposal.first(max(limit, 0))
    tokens, chances, parents = proposal.tokens, proposal.chances, proposal.parents
    if not tokens:
        return None
    plain = len(chances) == len(tokens) and min(tokens) >= 0 and max(tokens) < vocabulary
    if plain and parents is not None:
        plain = len(parents) == len(tokens) == _rooted(parents, len(tokens))
    # A sum that is a number has no NaN among its terms, which min and max alone would not tell.
    if plain and sum(chances) >= 0.0 and min(chances) >= 0.0 and max(chances) <= 1.0:
        return proposal
    count = min(len(tokens), len(chances), _rooted(parents, len(tokens)))
    count = next((i for i in range(count) if not 0 <= tokens[i] < vocabulary), count)
    if count == 0:
        return None
    above = None if parents is None else parents[:count]
    return Proposal(proposal.source, tokens[:count], tuple(map(_probability, chances[:count])), above, proposal.graft)


def _rooted(parents: tuple[int, ...] | None, count: int) -> int:
    """How many rows, from the first, have a parent that stands before them."""
    if parents is None:
        return count
    return next((row for row, parent in enumerate(parents) if not 0 <= parent <= row), len(parents))


def _probability(chance: float) -> float:
    # The comparison is false for NaN, which so becomes 0.
    return min(chance, 1.0) if chance > 0.0 else 0.0
