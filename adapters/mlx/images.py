"""A lane's state as host buffers and back: one buffer for each entry of the plan's `state_spec`, in its order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from tensorfold.adapters.mlx.decoder import Decoder
from tensorfold.adapters.mlx.forward import LaneState
from tensorfold.application.ports.target_model import LaneImage, ModelIdentity
from tensorfold.domain.families.state import StateEntry

A = TypeVar("A")


def lane_entries(decoder: Decoder[A]) -> tuple[StateEntry, ...]:
    """The buffers of a lane, in the dtype rows run in here."""
    return tuple(entry for entries in decoder.entries for entry in entries)


def image_of(state: LaneState[A], decoder: Decoder[A], identity: ModelIdentity) -> LaneImage:
    """Copy a lane's committed state."""
    parts = [part for layer in state.layers for part in layer.export()]
    names = [entry.path for entry in lane_entries(decoder)]
    return LaneImage(state.length, tuple(zip(names, parts, strict=True)), mark(identity))


def load_image(image: LaneImage, state: LaneState[A], decoder: Decoder[A], identity: ModelIdentity) -> None:
    """Make an empty lane's state that of an image. Raises ValueError when it is of another engine or malformed."""
    if image.identity != mark(identity):
        raise ValueError("the image is of another engine")
    entries = lane_entries(decoder)
    if image.length < 0 or [name for name, _ in image.buffers] != [entry.path for entry in entries]:
        raise ValueError("the image does not hold this model's state")
    parts = [data for _, data in image.buffers]
    if any(len(data) != entry.bytes_at(image.length) for entry, data in zip(entries, parts, strict=True)):
        raise ValueError(f"the image's buffers are not those of {image.length} tokens")
    load_parts(state, decoder, parts, image.length)


def load_parts(state: LaneState[A], decoder: Decoder[A], parts: Sequence[bytes], length: int) -> None:
    """Make a lane's state that of `length` tokens, from one buffer for each entry of `lane_entries`."""
    at = 0
    for layer, entries in zip(state.layers, decoder.entries, strict=True):
        layer.load(parts[at : at + len(entries)], length)
        at += len(entries)
    state.length = length


def mark(identity: ModelIdentity) -> str:
    """What an image's bits depend on, as one digest; the name a model is served under is not part of it."""
    return hashlib.sha256(repr(replace(identity, name="")).encode()).hexdigest()
