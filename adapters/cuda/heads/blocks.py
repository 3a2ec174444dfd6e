"""Small int32 blocks of a head's launches: fields at addresses of their own, filled by one copy from pinned memory.

And the way back: what a launch tells, on its way to the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.rows import CONV_PAST, Rows, Tensor

TURNS = 3
_ROW_FIELDS = ("ids", "positions", "lanes", "lengths", "committed", "slots")


def row_shapes(rows: int, width: int) -> dict[str, tuple[int, ...]]:
    """The fields of `rows` rows whose windows are at most `width` wide, as attention reads them."""
    return {**dict.fromkeys(_ROW_FIELDS, (rows,)), "path": (rows, width)}


class IntBlock:
    """`device` and `host` fields by name. Write the host's, then `send`; it never waits for the copy before."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: Any) -> None:
        size = sum(prod(shape) for shape in shapes.values())
        pinned = torch.device(device).type == "cuda"
        self._whole = torch.zeros(size, dtype=torch.int32, device=device)
        self.device: dict[str, Tensor] = _parted(self._whole, shapes)
        self._hosts = [torch.zeros(size, dtype=torch.int32, pin_memory=pinned) for _ in range(TURNS)]
        self._fields = [_parted(host.numpy(), shapes) for host in self._hosts]
        self._copied: list[Any] = [torch.cuda.Event() if pinned else None for _ in range(TURNS)]
        self._turn = 0

    def host(self) -> dict[str, NDArray[np.int32]]:
        """The host's fields of the next copy."""
        self._turn = (self._turn + 1) % TURNS
        if self._copied[self._turn] is not None:
            self._copied[self._turn].synchronize()
        return self._fields[self._turn]

    def send(self) -> None:
        """Copy them."""
        self._whole.copy_(self._hosts[self._turn], non_blocking=True)
        if self._copied[self._turn] is not None:
            self._copied[self._turn].record()


class Reading:
    """What a tensor holds once everything queued so far is over; later work may write it again."""

    def __init__(self, tensor: Tensor) -> None:
        self._copied: Any = None
        if tensor.is_cuda:
            self._host: Tensor = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()
        else:
            self._host = tensor.clone()

    def get(self) -> Tensor:
        """It, on the host; waits for it."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._host


def rows_of(fields: Mapping[str, Tensor], table: Tensor) -> Rows:
    """The fields as blocks read them; nothing recurrent stands in a head."""
    ids = fields["ids"]
    none = torch.zeros((1, 1, 3), dtype=torch.int32, device=ids.device)
    return Rows(
        count=len(ids),
        ring_at=torch.zeros_like(ids),
        taps=torch.full((len(ids), CONV_PAST), -1, dtype=torch.int32, device=ids.device),
        schedule=none,
        counts=none[0, 0, :1],
        places=none[0, :, :2],
        table=table,
        **{name: fields[name] for name in (*_ROW_FIELDS, "path")},
    )


def _parted(block: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    parts, at = {}, 0
    for name, shape in shapes.items():
        parts[name] = block[at : at + prod(shape)].reshape(shape)
        at += prod(shape)
    return parts
