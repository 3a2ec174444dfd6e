"""How much of a card a process may take, from what is free now, what is left to others, and what was asked for.

Arithmetic alone. Where card and processor share one memory, what the system calls available is what is free.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorfold.domain.memory.budgets import GIB, Budget, Card, gib
from tensorfold.domain.memory.windows import MemoryRefusal

RESERVE_NAME = "TENSORFOLD_MEMORY_RESERVE_GIB"
CARD_LIMIT = "TENSORFOLD_CUDA_MEMORY_LIMIT_GB"
LEAST_FLOOR, FLOOR_PART = 4 * GIB, 10
"""At least so much, or a tenth of the whole, is left to whatever else uses it."""
HOST_RESERVE = 2 * GIB
"""Left of the machine's memory while weights pass through it."""


def card_budget(card: Card, *, reserve: int | None, limits: Mapping[str, int]) -> Budget:
    """What is free less what is left to others, or the least of `limits` (bytes by name) where one is less still.

    `reserve` None: the usual. Raises MemoryRefusal where what is to be left is more than there is.
    """
    free = card.available if card.unified else card.free
    where = "available of the memory that processor and card share" if card.unified else "free of the card"
    left = max(LEAST_FLOOR, card.total // FLOOR_PART) if reserve is None else reserve
    if reserve is not None and reserve >= free:
        raise MemoryRefusal(
            f"{RESERVE_NAME} asks to leave {gib(reserve)} and {gib(free)} are {where}: give a smaller number of GiB."
        )
    grant = max(0, free - left)
    name, limit = min(limits.items(), key=lambda each: each[1], default=("", grant))
    if limit < grant:
        return Budget(limit, name, 0, reserve=0)
    kept_for = f"as {RESERVE_NAME} asks" if reserve is not None else "left to others"
    note = (
        f"{name} is {gib(limit)}, which is not below the {gib(grant)} there are: it changes nothing" if limits else ""
    )
    return Budget(free, f"what is {where}", 0, note, reserve=left, kept_for=kept_for)


def check_host(card: Card, staging: int) -> None:
    """Refuse weights that cannot pass through the machine's memory. Raises MemoryRefusal."""
    room = max(0, card.available - HOST_RESERVE)
    if not card.unified and staging > room:
        raise MemoryRefusal(
            f"Reading the weights takes {gib(staging)} of the machine's memory at a time and {gib(room)} are available "
            f"for it, {gib(HOST_RESERVE)} left to others: end what else runs there. Nothing was loaded."
        )
