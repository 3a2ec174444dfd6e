"""A lane's state as host buffers and back: one buffer for each entry of the plan's `state_spec`, in its order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tensorfold.adapters.cuda.assembly import RecurrentBlock
from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.application.ports.target_model import LaneImage, ModelIdentity
from tensorfold.domain.families.state import StateEntry

if TYPE_CHECKING:
    from tensorfold.adapters.cuda.engine_parts import EngineParts


def image_of(parts: EngineParts, entry: LaneEntry, head: Any, identity: ModelIdentity) -> LaneImage:
    """Copy a lane's committed state, and its head's where it has one."""
    buffers: list[bytes] = []
    for block in parts.assembly.order:
        if isinstance(block, RecurrentBlock):
            buffers += block.export(entry.committed, entry.last)
        else:
            buffers += block.export(entry.pages, entry.length)
    names = [each.path for each in parts.assembly.entries]
    if head is not None:
        buffers += head.export()
        names += [each.path for each in parts.head.entries]
    return LaneImage(entry.length, tuple(zip(names, buffers, strict=True)), mark(identity))


def check_image(parts: EngineParts, image: LaneImage, identity: ModelIdentity) -> None:
    """Raise ValueError for an image that is of another engine or malformed."""
    if image.identity != mark(identity):
        raise ValueError("the image is of another engine")
    own = parts.assembly.entries
    names, data = [name for name, _ in image.buffers], [part for _, part in image.buffers]
    if image.length < 0 or names[: len(own)] != [each.path for each in own]:
        raise ValueError("the image does not hold this model's state")
    _check_sizes(own, data, image.length)
    head = [] if parts.head is None else list(parts.head.entries)
    if names[len(own) :] == [each.path for each in head]:
        _check_sizes(head, data[len(own) :], image.length)


def load_image(parts: EngineParts, image: LaneImage, entry: LaneEntry, head: Any) -> bool:
    """Make an empty lane's state that of a checked image; False where its head's part is missing."""
    data = [part for _, part in image.buffers]
    entry.last = tuple(entry.own[-3:])
    at = 0
    for block in parts.assembly.order:
        pair = data[at : at + 2]
        at += 2
        if isinstance(block, RecurrentBlock):
            block.load(entry.committed, entry.last, pair)
        else:
            block.load(entry.pages, pair, image.length)
    entry.length = image.length
    if head is None:
        return True
    if [name for name, _ in image.buffers[at:]] != [each.path for each in parts.head.entries]:
        # None, or those of another head.
        return False
    head.load(data[at:], image.length)
    return True


def _check_sizes(entries: Sequence[StateEntry], parts: Sequence[bytes], length: int) -> None:
    for entry, data in zip(entries, parts, strict=False):
        # The model's own head has entered every token but the last, which waits for the one behind it.
        held = max(0, length - 1) if entry.path.startswith("mtp.") else length
        if len(data) != entry.bytes_at(held):
            raise ValueError(f"the image's buffers are not those of {length} tokens")


def mark(identity: ModelIdentity) -> str:
    """What an image's bits depend on, as one digest; the name a model is served under is not part of it."""
    return hashlib.sha256(repr(replace(identity, name="")).encode()).hexdigest()
