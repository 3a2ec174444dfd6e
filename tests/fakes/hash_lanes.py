"""Lanes of the hash model: committed state, what an audit remembers, and their form as an image."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorfold.application.ports.target_model import LaneImage


@dataclass(slots=True)
class HashLane:
    """Committed state of one lane. `provisional` is the ticket of a launch not yet kept, `kept` of the last kept."""

    state: int
    capacity: int
    length: int = 0
    provisional: int | None = None
    kept: int | None = None


@dataclass(frozen=True, slots=True)
class KeepRecord:
    """A lane after one keep: tokens absorbed, the state they left, and the ids this keep added."""

    length: int
    state: int
    kept: tuple[int, ...]


@dataclass(slots=True)
class LaneTrail:
    """Everything a lane absorbed, in order, and its keeps."""

    absorbed: list[int] = field(default_factory=list)
    keeps: list[KeepRecord] = field(default_factory=list)

    def copied(self) -> LaneTrail:
        """An independent copy."""
        return LaneTrail(list(self.absorbed), list(self.keeps))


def image_of(lane: HashLane, absorbed: Sequence[int] | None, identity: str) -> LaneImage:
    """The image of a lane; `absorbed` ids travel along when they are known."""
    buffers = [("layers.0.hash.recurrent", struct.pack("<Q", lane.state))]
    if absorbed is not None:
        buffers.append(("layers.0.hash.tokens", struct.pack(f"<{len(absorbed)}I", *absorbed)))
    return LaneImage(lane.length, tuple(buffers), identity)


def lane_from(image: LaneImage, identity: str) -> tuple[int, list[int]]:
    """State and known ids of an image. Raises ValueError when it is of another model or malformed."""
    if image.identity != identity:
        raise ValueError("the image is of another model")
    buffers = dict(image.buffers)
    state = buffers.pop("layers.0.hash.recurrent", b"")
    ids = buffers.pop("layers.0.hash.tokens", None)
    if image.length < 0 or len(state) != 8 or buffers or (ids is not None and len(ids) != 4 * image.length):
        raise ValueError("the image is malformed")
    absorbed = list(struct.unpack(f"<{image.length}I", ids)) if ids is not None else []
    return struct.unpack("<Q", state)[0], absorbed
