"""Prompts laden with markers, for tests of chunk plans: short alphabets, so that markers come by chance as well."""

from __future__ import annotations

import random

from tensorfold.domain.prompts.chunks import ChunkRule
from tensorfold.domain.prompts.markers import Markers

OPEN, USER, ASSISTANT, END = 1, 2, 3, 4
MARKERS = Markers(frozenset({OPEN}), (OPEN, ASSISTANT))
RULE = ChunkRule(24, MARKERS, 6)
"""Chunks of 6 to 24 ids."""


def prompt(random_: random.Random, length: int) -> list[int]:
    """Messages of a few ids each, whole and broken markers among them."""
    ids: list[int] = []
    while len(ids) < length:
        kind = random_.random()
        if kind < 0.3:
            ids += [OPEN, random_.choice((USER, ASSISTANT))]
        elif kind < 0.4:
            ids.append(random_.choice((OPEN, ASSISTANT)))
        ids += [random_.randrange(2, 9) for _ in range(random_.randrange(12))]
    return ids[:length]
