"""The chunk size where there are several: the largest that there is room for. A pure function.

A chunk decides bits of prompts longer than it, so the size is printed at startup and part of the identity of kept
states, and one that was chosen before stands for as long as it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

CONTEXT = 128 * 1024
"""Tokens of context that must still fit beside the work of a chunk."""
CARD_CHUNKS = (4096, 2048, 1024)
"""Sizes on a card, whatever the family: matrices are unpacked once a chunk, however many rows it has."""
SHARED = 2048
"""The largest on a card that streams share: they wait while a chunk runs, and it may not be cut otherwise for them."""
MOST_PLAIN = 4096
"""The largest chunk on a GPU without tensor units, whose prompt rows gain nothing from a larger one."""


def card_chunks(streams: int) -> tuple[int, ...]:
    """The sizes on a card with room for so many streams at a time, the largest first."""
    return tuple(size for size in CARD_CHUNKS if streams < 2 or size <= SHARED)


def choose_chunk(
    candidates: Sequence[int], fits: Callable[[int], bool], *, tensor_units: bool, before: int | None = None
) -> int:
    """The largest of `candidates` for which `fits` tells that there is room; the smallest where there is for none.

    `before` is what an earlier start chose: it stands where it is still a candidate and fits. A family with one
    candidate has that one, whatever fits. Raises ValueError for no candidate.
    """
    if not candidates:
        raise ValueError("a family names at least one chunk")
    ordered = sorted(candidates, reverse=True)
    if len(ordered) == 1:
        return ordered[0]
    allowed = [size for size in ordered if tensor_units or size <= MOST_PLAIN] or ordered[-1:]
    if before in allowed and fits(before):
        return before
    return next((size for size in allowed if fits(size)), allowed[-1])
