"""Makes input `number` of a seed: the same one everywhere."""

from __future__ import annotations

import random

from tests.prove.fuzzing.arena import BODY_LIMIT
from tests.prove.fuzzing.good import goods
from tests.prove.fuzzing.harmful import damaged, oversized
from tests.prove.fuzzing.harmless import respelled
from tests.prove.fuzzing.inputs import Input
from tests.prove.fuzzing.raw import connection, noise

CLOSED_EVERY = 8
"""One input of so many goes to a server that asks for a key."""


def made(seed: int, number: int) -> tuple[str, Input]:
    """The input, and its kind in words."""
    chance = random.Random(f"{seed}/{number}")
    kind = chance.randrange(100)
    if kind < 28:
        return "bodies spelled otherwise", respelled(chance, goods())
    if kind < 66:
        return "damaged bodies", damaged(chance, goods())
    if kind < 94:
        return "connections", connection(chance, goods())
    if kind < 98:
        return "connections without HTTP", noise(chance)
    return "oversized bodies", oversized(chance, BODY_LIMIT)


def closed(number: int) -> bool:
    """Whether the input goes to the server with a key."""
    return number % CLOSED_EVERY == CLOSED_EVERY - 1
