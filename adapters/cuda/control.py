"""The integers of launches on the device: one block of int32 for each row count, filled by one copy.

Host blocks are pinned and take turns, so that a launch never waits for the copy of the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.lane_book import LaneBook
from tensorfold.adapters.cuda.plans import LINES, PlannedRows, fill, most_steps
from tensorfold.adapters.cuda.rows import CONV_PAST, Rows
from tensorfold.domain.memory.cuda_holding import Room

TURNS = 3


def shapes(room: Room, rows: int) -> dict[str, tuple[int, ...]]:
    """The fields of a block, in order; `Rows` says what they hold, `lines` those of LINES."""
    return {
        "counts": (room.lanes,),
        "places": (room.lanes, 2),
        "lines": (len(LINES), rows),
        "taps": (rows, CONV_PAST),
        "path": (rows, room.width),
        "schedule": (room.lanes, most_steps(room), 3),
    }


class ControlBlock:
    """The block of one row count: `rows` on the device, `send` to fill it."""

    def __init__(self, room: Room, count: int, table: Any, device: Any) -> None:
        wanted = shapes(room, count)
        size = sum(prod(shape) for shape in wanted.values())
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        pinned = torch.device(device).type == "cuda"
        self._hosts = [torch.zeros(size, dtype=torch.int32, pin_memory=pinned) for _ in range(TURNS)]
        self._copied: list[Any] = [torch.cuda.Event() if pinned else None for _ in range(TURNS)]
        self._fields = [_parted(host.numpy(), wanted) for host in self._hosts]
        self._turn = 0
        parts = _parted(self._device, wanted)
        lines = parts.pop("lines")
        self.rows = Rows(count=count, table=table, **parts, **dict(zip(LINES, lines, strict=True)))

    def send(self, planned: Sequence[PlannedRows], book: LaneBook) -> None:
        """Fill the block for the windows of a launch."""
        self._turn = (self._turn + 1) % TURNS
        event = self._copied[self._turn]
        if event is not None:
            event.synchronize()
        fields = self._fields[self._turn]
        fill(fields, planned, self.rows.count, book.nobody)
        self._device.copy_(self._hosts[self._turn], non_blocking=True)
        if event is not None:
            event.record()

    def send_replay(self, schedule: Mapping[int, Sequence[tuple[int, int, int]]], places: Mapping[int, Any]) -> None:
        """Fill the block for steps without rows: of each lane slot its steps and its places."""
        self._turn = (self._turn + 1) % TURNS
        if self._copied[self._turn] is not None:
            self._copied[self._turn].synchronize()
        fields = self._fields[self._turn]
        fields["counts"][:] = 0
        for slot, steps in schedule.items():
            fields["schedule"][slot, : len(steps)] = steps
            fields["counts"][slot] = len(steps)
            fields["places"][slot] = places[slot]
        self._device.copy_(self._hosts[self._turn], non_blocking=True)
        if self._copied[self._turn] is not None:
            self._copied[self._turn].record()


class Table:
    """Pages of every lane slot, on the device as [L, P] int32."""

    def __init__(self, room: Room, device: Any, nobody: Sequence[int]) -> None:
        self._host: NDArray[np.int32] = np.zeros((room.lanes, room.pages_per_lane), np.int32)
        self._host[room.lanes - 1] = nobody[0]
        self.device = torch.from_numpy(self._host).to(device)
        if self.device.data_ptr() == self._host.ctypes.data:
            self.device = self.device.clone()

    def set(self, slot: int, pages: Sequence[int]) -> None:
        """A lane's pages; those behind its last are not read."""
        self._host[slot, : len(pages)] = pages
        self.device[slot].copy_(torch.from_numpy(self._host[slot].copy()))


def _parted(block: Any, wanted: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    parts, at = {}, 0
    for name, shape in wanted.items():
        parts[name] = block[at : at + prod(shape)].reshape(shape)
        at += prod(shape)
    return parts
