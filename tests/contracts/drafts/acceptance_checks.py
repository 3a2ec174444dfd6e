"""An acceptance rule: the longest branch of a window that the target's own draws follow, and the draw behind it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorfold.domain.verification import Acceptance
from tensorfold.domain.windows import Window, chain, tree
from tests.contracts.drafts.plain_rule import plain_rule

Rule = Callable[[Window, Sequence[int], int, frozenset[int]], Acceptance]


@dataclass(frozen=True, slots=True)
class AcceptanceSubject:
    """A rule; `forced` tells whether it takes windows with forced rows."""

    accept: Rule
    forced: bool = True


def _case(seed: int, forced: bool) -> tuple[Window, list[int], int, frozenset[int]]:
    """A window over few ids, draws that mostly follow it, any room, stops now and then."""
    rng = random.Random(seed)
    ids = rng.choice((2, 3, 8))
    width = rng.randint(1, 16)
    tokens = [rng.randrange(ids) for _ in range(width)]
    if rng.random() < 0.5:
        window = tree(tokens[0], tokens[1:], [rng.randrange(max(0, row - 3), row) for row in range(1, width)])
    else:
        fed = rng.randint(0, width - 1) if forced and rng.random() < 0.5 else 0
        window = chain(tokens[0], tokens[1 + fed :], tokens[1 : 1 + fed])
    draws = [rng.randrange(ids) for _ in range(width)]
    for row, parent in enumerate(window.parents):
        if parent >= 0 and rng.random() < 0.8:
            draws[parent] = window.tokens[row]
    for row in range(window.forced):
        draws[row] = -1
    stops = frozenset(rng.sample(range(ids), 1)) if rng.random() < 0.3 else frozenset[int]()
    return window, draws, rng.randint(0, 18), stops


def it_equals_the_plain_rule(subject: AcceptanceSubject) -> None:
    """On windows of every kind, twins among siblings included."""
    for seed in range(4000):
        window, draws, room, stops = _case(seed, subject.forced)
        assert subject.accept(window, draws, room, stops) == plain_rule(window, draws, room, stops), seed


def at_least_one_token_comes_back(subject: AcceptanceSubject) -> None:
    """However small the room, and as many as rows stay with the forced ones."""
    for seed in range(500):
        window, draws, room, stops = _case(seed, subject.forced)
        accepted = subject.accept(window, draws, room, stops)
        assert len(accepted.tokens) >= 1
        assert len(accepted.path) == window.forced + len(accepted.tokens)


def a_stop_inside_a_right_run_ends_it_at_every_place(subject: AcceptanceSubject) -> None:
    """The stop is the last token; so does the room."""
    tokens = list(range(1, 17))
    window = chain(0, tokens)
    for end in range(1, 17):
        stopped = subject.accept(window, [*tokens, 99], 99, frozenset([end]))
        assert stopped == Acceptance(tuple(range(end)), tuple(range(1, end + 1)))
        assert subject.accept(window, [*tokens, 99], end, frozenset()) == stopped
