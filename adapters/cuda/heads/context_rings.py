"""Keys and values that blocks of drafts read of the kept tokens: for each lane a ring of the newest ones.

A ring holds a page more than a block can reach, so that the kept rows of a round never meet what is still read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.adapters.cuda.rows import PAGE, Tensor
from tensorfold.domain.memory.cuda_holding import STATES, Room
from tensorfold.kernels.triton.draft_block import Rings


class ContextRings:
    """Rings of every lane slot and of every kept state. A block reads the newest `window` - 1 tokens."""

    def __init__(self, room: Room, layers: int, groups: int, width: int, window: int, dtype: Any, device: Any) -> None:
        self._room, self._window, self._dtype = room, window, dtype
        shape = (room.lanes + room.kept, layers, 2, window - 1 + PAGE, groups, width)
        self.rings = Rings(torch.zeros(shape, dtype=dtype, device=device), window)

    @property
    def nobody(self) -> int:
        """The ring of rows that pad a launch."""
        return self._room.lanes - 1

    def of(self, entry: LaneEntry) -> int:
        """The ring of a lane or of a kept state."""
        return entry.slot if entry.slot >= 0 else self._room.lanes + entry.committed - STATES * self._room.lanes

    def held(self, length: int) -> int:
        """Tokens of a lane of `length` that a block may read."""
        return min(length, self._window - 1)

    def copy(self, source: int, target: int) -> None:
        """One ring into another."""
        self.rings.rings[target].copy_(self.rings.rings[source])

    def export(self, ring: int, length: int) -> tuple[bytes, ...]:
        """Keys, then values, layer by layer: each [tokens, G, D], oldest first."""
        parts = self.rings.rings[ring].index_select(2, self._places(length)).cpu()
        return tuple(
            part.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for layer in parts for part in layer
        )

    def load(self, ring: int, parts: Sequence[bytes], length: int) -> None:
        """Write what `export` gave. Raises ValueError on a wrong size."""
        held = self.rings.rings[ring]
        size = self.held(length) * held[0, 0, 0].numel() * held.element_size()
        if [len(part) for part in parts] != [size] * (2 * held.shape[0]):
            raise ValueError(f"a drafter's buffers are not those of {length} tokens, which have {size} bytes each")
        places = self._places(length)
        for at, part in enumerate(parts):
            values = torch.from_numpy(np.frombuffer(part, np.uint8).copy()).view(self._dtype)
            rows = torch.nan_to_num(values.reshape(-1, *held.shape[3:]).to(held.device))
            held[at // 2, at % 2].index_copy_(0, places, rows)

    def _places(self, length: int) -> Tensor:
        positions = np.arange(length - self.held(length), length) % self.rings.capacity
        return torch.from_numpy(positions).to(self.rings.rings.device)
