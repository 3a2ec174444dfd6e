"""What a server's memory comes to at one moment, for health and metrics. Bytes; nothing here decides anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """Of `budget` bytes the model may take `model`; `weights` is what its weights are reckoned at.

    `reserved`: streams with all that they count with, paused ones with what they hold, and a round's work. `kept`:
    states of prompts. `active`, `cached` and `peak` are the allocator's own, None where the device's tells none.
    """

    budget: int
    model: int
    weights: int
    reserved: int
    kept: int
    active: int | None
    cached: int | None
    peak: int | None

    def known(self) -> Mapping[str, int]:
        """Those that are told, by name."""
        named = {
            "budget": self.budget,
            "model": self.model,
            "weights": self.weights,
            "reserved": self.reserved,
            "kept_prompts": self.kept,
            "active": self.active,
            "cached": self.cached,
            "peak": self.peak,
        }
        return {name: size for name, size in named.items() if size is not None}
