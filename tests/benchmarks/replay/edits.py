"""Small edits of a run of ids: now and then 1 to 4 ids are replaced, inserted or deleted."""

from __future__ import annotations

import random
from collections.abc import Sequence

MOST_IDS = 4


def edited(ids: Sequence[int], every: float, rng: random.Random) -> list[int]:
    """`ids` with an edit before each of them with chance 1 / `every`; new ids are drawn from those of the text.

    The first new id is never the one that stood there, else an edit would begin later than it says. Raises ValueError
    when the text has fewer than two different ids.
    """
    known = sorted(set(ids))
    if len(known) < 2:
        raise ValueError("a text of one id cannot be edited")
    out: list[int] = []
    at = 0
    while at < len(ids):
        if rng.random() * every >= 1.0:
            out.append(ids[at])
            at += 1
            continue
        count = rng.randint(1, MOST_IDS)
        kind = rng.choice(("replace", "insert", "delete"))
        if kind != "delete":
            out.append(rng.choice([token for token in known if token != ids[at]]))
            out += (rng.choice(ids) for _ in range(count - 1))
        if kind != "insert":
            at += count
    return out
