"""The keys of the index: a number in place of each KEY_IDS ids, spread evenly over the slots of a table.

Knows ids and arithmetic only. A key is a polynomial of the ids modulo 2**64, mixed; its upper half, taken as a fraction
of 2**32, names the slot, so a table may have any number of entries. Different ids may share a slot: who looks there
compares the ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.recall.layout import KEY_IDS, Ids

_MASK = (1 << 64) - 1
_FACTOR = 0xD1342543DE82EF95
_MIX = 0x9E3779B97F4A7C15
_POWERS = tuple(pow(_FACTOR, KEY_IDS - 1 - place, 1 << 64) for place in range(KEY_IDS))


def slot_of(ids: Sequence[int], entries: int) -> int:
    """The slot, below `entries` (at most 2**32), of KEY_IDS ids."""
    key: int = sum(map(mul, ids, _POWERS)) & _MASK
    # The last id stands in the lower bits alone; a product's upper half depends on all bits, and folding the key first
    # keeps keys that lie at equal distances from falling into slots that do.
    return (((key ^ key >> 32) * _MIX & _MASK) >> 32) * entries >> 32


def slots_of(ids: Ids, entries: int) -> NDArray[np.uint64]:
    """The slot of every KEY_IDS ids in a row of `ids`, in order: KEY_IDS - 1 fewer than `ids`."""
    keys = ids.astype(np.uint64)
    width, factor = 1, _FACTOR
    while width < KEY_IDS:
        keys = keys[:-width] * np.uint64(factor) + keys[width:]
        width, factor = 2 * width, factor * factor & _MASK
    keys ^= keys >> np.uint64(32)
    keys *= np.uint64(_MIX)
    keys >>= np.uint64(32)
    keys *= np.uint64(entries)
    keys >>= np.uint64(32)
    return keys


def whole(ids: Ids) -> NDArray[np.bool_]:
    """Whether no separator is among them, for every KEY_IDS ids in a row of `ids`, as in `slots_of`."""
    clean = ids >= 0
    width = 1
    while width < KEY_IDS:
        clean = clean[:-width] & clean[width:]
        width *= 2
    return clean
