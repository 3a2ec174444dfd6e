"""Small requests of random ids for the tests of the replay."""

from __future__ import annotations

import random

from tests.benchmarks.replay.workload import Request, Workload

VOCABULARY = 1000
END = 0


def ids(seed: int, count: int) -> tuple[int, ...]:
    rng = random.Random(seed)
    return tuple(rng.randrange(1, VOCABULARY) for _ in range(count))


def request(seed: int, reply: int = 120) -> Request:
    return Request(ids(seed, 40), (*ids(seed + 1, reply), END))


def again(*seeds: int) -> Workload:
    """Requests recorded and sent again."""
    sent = tuple(map(request, seeds))
    return Workload("again", "sent again", sent, sent)
