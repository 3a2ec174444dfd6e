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
        return Landing(landed, landed < len(decided) and open_end, row not in parents[row:])


class _Branch(NamedTuple):
    """Votes that agree on `ids`, counted from the beginning, reached with `share` of all votes."""

    votes: Sequence[Vote]
    share: float
    ids: tuple[int, ...]


def likeliest(votes: Sequence[Vote], chances: Sequence[float], rows: int) -> Drafts:
    """A chain of at most `rows` ids: at each parting the way with most votes, of equal ones the earlier vote's.

    `chances[d]` is the chance that id d lands if the places agree on it.
    """
    tokens: list[int] = []
    scaled: list[float] = []
    chances = chances[:rows]
    ways = _ways(votes, 0, 1.0)
    while ways:
        branch = max(ways, key=_share_of)
        scaled += [branch.share * chance for chance in chances[len(tokens) : len(branch.ids)]]
        tokens += branch.ids[len(tokens) : len(chances)]
        if len(tokens) < len(branch.ids):
            break
        ways = _ways(branch.votes, len(tokens), branch.share)
    return Drafts(tuple(tokens), tuple(scaled))


def spread(votes: Sequence[Vote], chances: Sequence[float], rows: int, dominant: float) -> Drafts:
    """A tree of at most `rows` ids, best chance first, so that every prefix is the best tree of its size.

    Where one way has `dominant` of the votes the others are left out.
    """
    tokens: list[int] = []
    scaled: list[float] = []
    parents: list[int] = []
    heap: list[tuple[float, int, int, int, _Branch]] = []
    age = count()

    def queue(branches: Sequence[_Branch], depth: int) -> None:
        if depth < len(chances):
            for branch in branches:
                heappush(heap, (-branch.share * chances[depth], next(age), depth, len(tokens), branch))

    queue(_kept(_ways(votes, 0, 1.0), 1.0, dominant), 0)
    while heap and len(tokens) < rows:
        negative, _, depth, parent, branch = heappop(heap)
        tokens.append(branch.ids[depth])
        scaled.append(-negative)
        parents.append(parent)
        depth += 1
        if depth < len(branch.ids):
            queue((branch,), depth)
        else:
            queue(_kept(_ways(branch.votes, depth, branch.share), branch.share, dominant), depth)
    forks = any(parent != row for row, parent in enumerate(parents))
    return Drafts(tuple(tokens), tuple(scaled), tuple(parents) if forks else None)


def _ways(votes: Sequence[Vote], depth: int, share: float) -> list[_Branch]:
    """The ways that the `votes`, `share` of all, go from the id at `depth` on; votes that end there are out."""
    groups: dict[int, list[Vote]] = {}
    for vote in votes:
        if len(vote.ids) > depth:
            groups.setdefault(vote.ids[depth], []).append(vote)
    weighed = [(group, sum(vote.weight for vote in group)) for group in groups.values()]
    total = sum(weight for _, weight in weighed)
    return [_Branch(group, share * weight / total, _agreed(group)) for group, weight in weighed]


def _kept(ways: list[_Branch], share: float, dominant: float) -> list[_Branch]:
    """All `ways`, or the one that has `dominant` of the `share` they have together."""
    clear = [way for way in ways if way.share >= share * dominant]
    return clear if len(clear) == 1 else ways


def _agreed(votes: Sequence[Vote]) -> tuple[int, ...]:
    """The ids, from the first, that all `votes` share."""
    # In the order of tuples, what the first and the last share is shared by all between.
    low, high = min(vote.ids for vote in votes), max(vote.ids for vote in votes)
    return low[: next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]


def _share_of(branch: _Branch) -> float:
    return branch.share
