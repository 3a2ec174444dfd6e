"""One proposal out of those of a stream's sources: the best of them, or all of them as one tree.

Weighs chances only; knows neither costs nor models. The result never holds a draft that no source proposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from tensorfold.domain.drafting.sources import JOINED, OWN_CONTEXT, Proposal


def arbitrate(proposals: Sequence[Proposal]) -> Proposal | None:
    """The proposal with the most drafts expected to be kept.

    Of equal ones the stream's own context wins, then the earlier in the sequence; None when there are none. Where the
    model verifies trees, `merge` is the alternative that gives no proposal up.
    """
    best: Proposal | None = None
    standing = (0.0, False)
    for proposal in proposals:
        rank = (proposal.expected, proposal.source == OWN_CONTEXT)
        if len(proposal) and (best is None or rank > standing):
            best, standing = proposal, rank
    return best


def merge(proposals: Sequence[Proposal], limit: int) -> Proposal | None:
    """At most `limit` drafts of all `proposals` as one tree; None when there are none.

    Drafts that follow the same ids share a row, whose chance is the highest that a source gave it. Chances of rows
    that follow the same row exclude each other, so where they add up to more than their parent's they are scaled down.
    Rows come best chance first, which puts every child behind its parent; of equal ones the earlier proposal's comes
    first. The source names are joined by `+`, of the rows taken only. A tree of one branch becomes a chain.
    """
    root = _Node(-1, 1.0, 0)
    for rank, proposal in enumerate(proposals):
        _graft(root, proposal, rank)
    tokens: list[int] = []
    chances: list[float] = []
    parents: list[int] = []
    ranks: set[int] = set()
    heap: list[tuple[float, int, int, _Node]] = []
    _offer_children(heap, root, 1.0, 0)
    while heap and len(tokens) < limit:
        negative, _, parent, node = heappop(heap)
        tokens.append(node.token)
        chances.append(-negative)
        parents.append(parent)
        ranks |= node.ranks
        _offer_children(heap, node, -negative, len(tokens))
    if not tokens:
        return None
    source = JOINED.join(dict.fromkeys(proposals[rank].source for rank in sorted(ranks)))
    is_chain = all(parent == row for row, parent in enumerate(parents))
    return Proposal(source, tuple(tokens), tuple(chances), None if is_chain else tuple(parents))


@dataclass(slots=True)
class _Node:
    """A row of the tree under construction: the highest chance given, its age, and whose proposals hold it."""

    token: int
    chance: float
    age: int
    ranks: set[int] = field(default_factory=set)
    children: dict[int, _Node] = field(default_factory=dict)


def _graft(root: _Node, proposal: Proposal, rank: int) -> None:
    rows = [root]
    for index, token in enumerate(proposal.tokens):
        above = rows[index if proposal.parents is None else proposal.parents[index]]
        node = above.children.get(token)
        if node is None:
            node = above.children[token] = _Node(token, 0.0, (rank << 32) + index)
        node.chance = max(node.chance, proposal.chances[index])
        node.ranks.add(rank)
        rows.append(node)


def _offer_children(heap: list[tuple[float, int, int, _Node]], node: _Node, chance: float, row: int) -> None:
    """Queue the children of `node`, which stands at `row` with the scaled `chance`."""
    total = sum(child.chance for child in node.children.values())
    # Chances below `node` were given for its unscaled chance; a child is never likelier than its parent.
    scale = chance / max(total, node.chance) if total > 0.0 else 0.0
    for child in node.children.values():
        heappush(heap, (-child.chance * scale, child.age, row, child))
