"""The acceptance rule written down once more, as it is stated and not as it is fast: what every rule must equal."""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.domain.verification import Acceptance
from tensorfold.domain.windows import Window


def plain_rule(window: Window, draws: Sequence[int], room: int, stops: frozenset[int]) -> Acceptance:
    """The rule as it is stated: search the children of the last row for the one that carries its draw."""
    path = list(range(window.forced + 1))
    while len(path) < room and draws[path[-1]] not in stops:
        rows = range(window.forced + 1, len(window.tokens))
        child = next((r for r in rows if window.parents[r] == path[-1] and window.tokens[r] == draws[path[-1]]), None)
        if child is None:
            break
        path.append(child)
    drafts = [window.tokens[row] for row in path[window.forced + 1 :]]
    return Acceptance(tuple(path), (*drafts, draws[path[-1]]))
