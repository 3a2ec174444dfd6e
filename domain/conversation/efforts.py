"""Levels of reasoning effort in their order, and the one that a template takes in place of one it does not name."""

from __future__ import annotations

from collections.abc import Sequence

DEFAULT = "medium"
OWN = "own"
"""Of a server that leaves the level to the template where a request names none."""
LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")


def nearest(effort: str, named: Sequence[str]) -> str:
    """The level of `named` that is closest to `effort`, of two the higher; `effort` itself where none is known."""
    known = [level for level in LEVELS if level in named]
    if not known or effort not in LEVELS:
        return effort
    at = LEVELS.index(effort)
    return min(known, key=lambda level: (abs(LEVELS.index(level) - at), -LEVELS.index(level)))
