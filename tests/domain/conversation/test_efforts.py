"""An effort becomes one that the template names: the nearest, of two the higher."""

from __future__ import annotations

import itertools

import pytest

from tensorfold.domain.conversation.efforts import LEVELS, nearest


@pytest.mark.parametrize(
    ("effort", "named", "taken"),
    [
        ("medium", ("low", "medium", "xhigh"), "medium"),
        ("high", ("low", "medium", "xhigh"), "xhigh"),
        ("max", ("low", "medium", "xhigh"), "xhigh"),
        ("minimal", ("low", "high", "max"), "low"),
        ("medium", ("low", "high", "max"), "high"),
        ("xhigh", ("low", "high", "max"), "max"),
        ("medium", ("high", "none", "odd"), "high"),
        ("medium", (), "medium"),
        ("medium", ("odd",), "medium"),
        ("odd", ("low",), "odd"),
    ],
)
def test_the_nearest_level_is_taken(effort: str, named: tuple[str, ...], taken: str) -> None:
    assert nearest(effort, named) == taken


def test_whatever_is_named_the_level_taken_is_named_and_none_is_closer() -> None:
    sets = (named for count in range(1, 7) for named in itertools.combinations(LEVELS, count))
    for named, effort in itertools.product(sets, LEVELS):
        taken = nearest(effort, tuple(reversed(named)))
        assert taken in named
        away = abs(LEVELS.index(taken) - LEVELS.index(effort))
        others = [LEVELS.index(level) for level in named if level != taken]
        assert all(abs(other - LEVELS.index(effort)) >= away for other in others)
        assert all(other < LEVELS.index(taken) for other in others if abs(other - LEVELS.index(effort)) == away)
