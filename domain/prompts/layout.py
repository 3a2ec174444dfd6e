"""What the buffers of a kept state may be, by a plan's state spec: names in their order, sizes by the tokens absorbed.

A backend holds rows in a dtype of its own, so a size may be that of the same values in another width; the backend
itself checks the rest when it takes the state in.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.domain.families.state import ITEM_BYTES, StateEntry

_HEADS = ("mtp.", "drafter.")
_WIDTHS = frozenset(ITEM_BYTES.values())


def accepts(entries: Sequence[StateEntry], tokens: int, buffers: Sequence[tuple[str, int]]) -> bool:
    """Whether buffers of these names and sizes may hold a lane of `entries` behind so many tokens.

    Buffers of draft heads may lack: all of them, or those of either.
    """
    names = [name for name, _ in buffers]
    own = [entry for entry in entries if not entry.path.startswith(_HEADS)]
    heads = [entry for entry in entries if entry.path.startswith(_HEADS)]
    by_name = {entry.path: entry for entry in entries}
    behind = names[len(own) :]
    if names[: len(own)] != [entry.path for entry in own]:
        return False
    if behind != [entry.path for entry in heads if entry.path in set(behind)]:
        return False
    return all(_sized(by_name[name], tokens, size) for name, size in buffers)


def _sized(entry: StateEntry, tokens: int, size: int) -> bool:
    """A head has entered every token but perhaps the last, which waits for the one behind it."""
    held = (tokens, max(0, tokens - 1)) if entry.path.startswith(_HEADS) else (tokens,)
    return any(size == entry.bytes_at(n) // ITEM_BYTES[entry.dtype] * width for n in held for width in _WIDTHS)
