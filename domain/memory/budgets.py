"""How much memory a process may take, from a machine's figures and what was asked for. Arithmetic only.

Knows no operating system and no allocator: who measures the machine hands its figures in. The same figures give the
same budget, so free memory, which changes from start to start, is not among them.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30
RESERVE = 3 * GIB
"""Kept back for the rest of the process: the interpreter, the server, tokenizers, libraries."""
FREED = 8 * GIB
"""Freed buffers that an allocator keeps for reuse when nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Card:
    """An NVIDIA card: bytes of it, those free now, and those of the machine's memory that are available now.

    `unified`: card and processor share one memory, that of the machine.
    """

    total: int
    free: int
    available: int
    unified: bool = False


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes of RAM, and of the GPU's recommended working set, None where the processor computes or a `card` does."""

    ram: int
    working_set: int | None = None
    card: Card | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """`process` bytes in all, and what bounds them in words; `cache` bounds freed buffers that are kept for reuse.

    `note` says what became of a limit that was asked for and does not hold; empty where there is nothing to say.
    `reserve` bytes are kept back, for whom `kept_for` says.
    """

    process: int
    bound: str
    cache: int
    note: str = ""
    reserve: int = RESERVE
    kept_for: str = "for the rest of the process"

    @property
    def allocator(self) -> int:
        """Bytes for weights, lanes and work: the process less its reserve."""
        return max(0, self.process - self.reserve)


def budget(
    machine: Machine, share: float, *, limit: int | None = None, cache: int = FREED, limit_name: str = ""
) -> Budget:
    """The least of a share of RAM and the GPU's working set, or `limit` bytes where those are less still.

    `limit_name` is what the limit is called in messages.
    """
    part = int(share * machine.ram)
    most, bound = part, f"{share:.0%} of {gib(machine.ram)}"
    if machine.working_set is not None and machine.working_set < part:
        most, bound = machine.working_set, "the GPU's recommended working set"
    note = ""
    if limit is not None and limit < most:
        most, bound = limit, limit_name
    elif limit is not None:
        note = f"{limit_name} is {gib(limit)}, which is not below the budget's {gib(most)}: it changes nothing"
    return Budget(most, bound, min(cache, max(0, most - RESERVE)), note)


def gib(size: float) -> str:
    """Bytes as a sentence tells them."""
    return f"{size / GIB:.2f} GiB" if size >= GIB // 10 else f"{size / (1 << 20):.1f} MiB"
