"""A lane's state as host buffers and back: one buffer for each entry of the plan's `state_spec`, in its order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from tensorfold.adapters.mlx.forward import Forward, LaneState
from tensorfold.application.ports.target_model import LaneImage, ModelIdentity
from tensorfold.domain.families.state import StateEntry

A = TypeVar("A")


def lane_entries(forward: Forward[A], *, drafts: bool = False) -> tuple[StateEntry, ...]:
    """The buffers of a lane, in the dtype rows run in here; the head's among them where it `drafts`."""
    own = tuple(entry for entries in forward.decoder.entries for entry in entries)
    return (*own, *forward.head.entries) if drafts and forward.head is not None else own


def image_of(state: LaneState[A], forward: Forward[A], identity: ModelIdentity) -> LaneImage:
    """Copy a lane's committed state, and its head's where it has one."""
    parts = [part for layer in state.layers for part in layer.export()]
    parts += [] if state.head is None else state.head.export()
    names = [entry.path for entry in lane_entries(forward, drafts=state.head is not None)]
    return LaneImage(state.length, tuple(zip(names, parts, strict=True)), mark(identity))


def load_image(image: LaneImage, state: LaneState[A], forward: Forward[A], identity: ModelIdentity) -> None:
    """Make an empty lane's state that of an image. Raises ValueError when it is of another engine or malformed.

    An image without a head's buffers leaves the lane without a head, since nothing can fill the gap; those of a head
    that is not loaded are passed over.
    """
    if image.identity != mark(identity):
        raise ValueError("the image is of another engine")
    own, head = lane_entries(forward), lane_entries(forward, drafts=True)[len(lane_entries(forward)) :]
    names, parts = [name for name, _ in image.buffers], [data for _, data in image.buffers]
    if image.length < 0 or names[: len(own)] != [entry.path for entry in own]:
        raise ValueError("the image does not hold this model's state")
    _check_sizes(own, parts, image.length)
    load_parts(state, forward, parts[: len(own)], image.length)
    if state.head is None or names[len(own) :] != [entry.path for entry in head]:
        state.head = None
        return
    _check_sizes(head, parts[len(own) :], image.length)
    state.head.load(parts[len(own) :], image.length)


def _check_sizes(entries: Sequence[StateEntry], parts: Sequence[bytes], length: int) -> None:
    for entry, data in zip(entries, parts, strict=False):
        # The model's own head has entered every token but the last, which waits for the one behind it.
        held = max(0, length - 1) if entry.path.startswith("mtp.") else length
        if len(data) != entry.bytes_at(held):
            raise ValueError(f"the image's buffers are not those of {length} tokens")


def load_parts(state: LaneState[A], forward: Forward[A], parts: Sequence[bytes], length: int) -> None:
    """Make a lane's state, but for its head, that of `length` tokens, from one buffer for each of its entries."""
    at = 0
    for layer, entries in zip(state.layers, forward.decoder.entries, strict=True):
        layer.load(parts[at : at + len(entries)], length)
        at += len(entries)
    state.length = length


def mark(identity: ModelIdentity) -> str:
    """What an image's bits depend on, as one digest; the name a model is served under is not part of it."""
    return hashlib.sha256(repr(replace(identity, name="")).encode()).hexdigest()
