"""One proposal out of several places that match: their continuations as votes on each next id.

Pure arithmetic over ids, weights and chances. Ids that all places share are one trunk; where they part, each way has
the share of the votes of the places that go it.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple


class Vote(NamedTuple):
    """The ids that follow one place, and how much it counts."""

    weight: float
    ids: tuple[int, ...]


class Landing(NamedTuple):
    """`landed` ids were right in a row, and the next was wrong if `missed`; `whole`: a branch landed to its end."""

    landed: int
    missed: bool
    whole: bool


class Drafts(NamedTuple):
    """Ids, the unconditional chance of each, and the row each one follows (None: a chain), as in a Proposal."""

    tokens: tuple[int, ...]
    chances: tuple[float, ...]
    parents: tuple[int, ...] | None = None

    @property
    def expected(self) -> float:
        """Ids expected to land when every row is granted."""
        return sum(self.chances)

    def landing(self, decided: Sequence[int], rows: int) -> Landing:
        """What became of the first `rows` ids when the stream went on with the `decided` ones."""
        tokens, parents = self.tokens, self.parents or range(len(self.tokens))
        rows = min(rows, len(tokens))
        row = landed = 0
        for child in range(rows):
            if landed == len(decided):
                break
            if parents[child] == row and tokens[child] == decided[landed]:
                row, landed = child + 1, landed + 1
        # Parents stand before their children, so what follows a row stands behind it.
        open_end = row in parents[row:rows]
        return Landing(landed, landed < len(decided) and open_end, landed > 0 and row not in parents[row:])


class _Branch(NamedTuple):
    """Votes that agree on ids up to the `end`th, reached with `share` of all votes."""

    votes: Sequence[Vote]
    share: float
    end: int


def likeliest(votes: Sequence[Vote], chances: Sequence[float], rows: int) -> Drafts:
    """A chain of at most `rows` ids: at each parting the way with most votes, of equal ones the earlier vote's.

    `chances[d]` is the chance that id d lands if the places agree on it.
    """
    tokens: list[int] = []
    scaled: list[float] = []
    ways = _ways(votes, 0, 1.0, 1.0)
    while ways and len(tokens) < rows:
        branch = max(ways, key=_share_of)
        until = min(branch.end, rows, len(chances))
        scaled += [branch.share * chance for chance in chances[len(tokens) : until]]
        tokens += branch.votes[0].ids[len(tokens) : until]
        if until < branch.end:
            break
        ways = _ways(branch.votes, branch.end, branch.share, 1.0)
    return Drafts(tuple(tokens), tuple(scaled))


def spread(votes: Sequence[Vote], chances: Sequence[float], rows: int, dominant: float) -> Drafts:
    """A tree of at most `rows` ids, best chance first, so that every prefix is the best tree of its size.

    Where one way has `dominant` of the votes the others are left out.
    """
    tokens: list[int] = []
    scaled: list[float] = []
    parents: list[int] = []
    heap: list[tuple[float, int, int, int, _Branch]] = []
    deepest = len(chances)
    age = count()

    def queue(branch: _Branch, depth: int, parent: int) -> None:
        if depth < deepest:
            heappush(heap, (-branch.share * chances[depth], next(age), depth, parent, branch))

    for branch in _ways(votes, 0, 1.0, dominant):
        queue(branch, 0, 0)
    while heap and len(tokens) < rows:
        negative, _, depth, parent, branch = heappop(heap)
        tokens.append(branch.votes[0].ids[depth])
        scaled.append(-negative)
        parents.append(parent)
        if depth + 1 < branch.end:
            queue(branch, depth + 1, len(tokens))
        else:
            for way in _ways(branch.votes, depth + 1, branch.share, dominant):
                queue(way, depth + 1, len(tokens))
    forks = any(parent != row for row, parent in enumerate(parents))
    return Drafts(tuple(tokens), tuple(scaled), tuple(parents) if forks else None)


def _ways(votes: Sequence[Vote], depth: int, share: float, dominant: float) -> list[_Branch]:
    """The ways that the `votes` go from the id at `depth` on; votes that end there are out."""
    groups: dict[int, list[Vote]] = {}
    for vote in votes:
        if len(vote.ids) > depth:
            groups.setdefault(vote.ids[depth], []).append(vote)
    weights = [sum(vote.weight for vote in group) for group in groups.values()]
    total = sum(weights)
    ways = [
        _Branch(group, share * weight / total, _agreed(group))
        for group, weight in zip(groups.values(), weights, strict=True)
    ]
    best = max(ways, key=_share_of, default=None)
    return [best] if best is not None and best.share >= share * dominant else ways


def _agreed(votes: Sequence[Vote]) -> int:
    """How many ids, from the first, all `votes` share."""
    if len(votes) == 1:
        return len(votes[0].ids)
    # In the order of tuples, what the first and the last share is shared by all between.
    low, high = min(vote.ids for vote in votes), max(vote.ids for vote in votes)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))


def _share_of(branch: _Branch) -> float:
    return branch.share
