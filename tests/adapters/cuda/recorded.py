"""Figures of two machines, as torch and the system tell them: a card of its own memory, and one that shares it.

The first were read on an H200 with nothing else on it (torch 2.11, 30 November 2026). The second are made up: 120 GiB
that a GPU shares, most of which hold files that were read.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.adapters.cuda.memory import Figures

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Recorded:
    """Bytes of RAM, of it available, of the card, of it free; whether they are one memory."""

    ram: int
    available: int
    total: int
    free: int
    unified: bool


DISCRETE = Recorded(131_981_020 << 10, 131_469_112 << 10, 150_109_880_320, 149_557_477_376, unified=False)
UNIFIED = Recorded(120 * GIB, 112 * GIB, 120 * GIB, 20 * GIB, unified=True)


def figures(recorded: Recorded) -> Figures:
    """Figures of that machine; 20 GiB are in tensors, 22 held, 23 were the most."""
    text = f"MemTotal:       {recorded.ram >> 10} kB\nMemFree:  1 kB\nMemAvailable:   {recorded.available >> 10} kB\n"
    return Figures(
        info=lambda: (recorded.free, recorded.total),
        unified=lambda: recorded.unified,
        allocated=lambda: 20 * GIB,
        reserved=lambda: 22 * GIB,
        most=lambda: 23 * GIB,
        release=lambda: None,
        meminfo=lambda: text,
    )
