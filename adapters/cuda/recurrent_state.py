"""What recurrent layers hold for the lanes of a room: rings of inputs, and places of states.

`raw` rows are a convolution's inputs, which later rows read; kept prompt ends have three each behind those of the
lanes. `mixed` and `factors` are what steps read, of lanes alone. A place is the state of one lane behind some token.
Which row and which place belongs to whom is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from tensorfold.adapters.cuda.assembly import Assembly, Pairs
from tensorfold.adapters.cuda.rows import CONV_PAST, Chunk, Tensor
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import ShortConv


class LaneStates:
    """The pools of one layer: a convolution over C channels, and states float32 [H, ...].

    `raw` and `mixed` [rows, C] are of the activations' dtype, `factors` float32 [rows, H, F]; `places` float32
    [places, H, ...].
    """

    def __init__(self, assembly: Assembly, channels: int, factors: int, shape: tuple[int, ...]) -> None:
        room, device = assembly.room, assembly.device
        stepped = room.lanes * room.ring
        self.raw = torch.zeros((room.ring_rows, channels), dtype=assembly.dtype, device=device)
        self.mixed = torch.zeros((stepped, channels), dtype=assembly.dtype, device=device)
        self.factors = torch.zeros((stepped, shape[0], factors), dtype=torch.float32, device=device)
        self.places = torch.zeros((room.places, *shape), dtype=torch.float32, device=device)

    def copy_place(self, source: int, target: int) -> None:
        """One place's state into another's."""
        self.places[target].copy_(self.places[source])

    def copy_ring(self, pairs: Pairs) -> None:
        """Raw inputs, (from, to) each: what a lane with nothing to replay needs of its ring."""
        for source, target in pairs:
            self.raw[target].copy_(self.raw[source])

    def clear(self, place: int) -> None:
        """Make a place the state behind no token."""
        self.places[place].zero_()

    def leave(self, x: Tensor, at: Chunk) -> None:
        """Raw inputs of a span's last rows, [T, >= C], into the ring."""
        for target, source in at.leave:
            self.raw[target].copy_(x[source, : self.raw.shape[1]])

    def export(self, place: int, last: Sequence[int]) -> tuple[bytes, ...]:
        """The last inputs [3, C] at flat ring rows `last` (-1: zeros), then the state."""
        tail = torch.zeros((CONV_PAST, self.raw.shape[1]), dtype=self.raw.dtype)
        for at, row in enumerate(last):
            if row >= 0:
                tail[at].copy_(self.raw[row])
        return _packed(tail), _packed(self.places[place].cpu())

    def load(self, place: int, last: Sequence[int], parts: Sequence[bytes]) -> None:
        """Write them. Raises ValueError on a wrong size."""
        tail, state = parts
        rows = _unpacked(tail, (CONV_PAST, self.raw.shape[1]), self.raw.dtype)
        self.places[place].copy_(_unpacked(state, tuple(self.places.shape[1:]), torch.float32))
        for at, row in enumerate(last):
            if row >= 0:
                self.raw[row].copy_(rows[at])


def conv_weights(assembly: Assembly, plan: ShortConv, path: str) -> tuple[Tensor, Tensor | None]:
    """A convolution's weight as float32 [4, C], oldest first, and its bias [C]. Raises RefusedError for others."""
    if plan.kernel != CONV_PAST + 1 or plan.dilation != 1 or plan.activation != "silu":
        raise RefusedError(
            f"{path} is no convolution of {CONV_PAST + 1} neighbours with silu; the CUDA backend has no other."
        )
    bias = assembly.weights.bias(path)
    taps = on_device(assembly, assembly.weights.floats(path)[:, 0, :].T)
    return taps, None if bias is None else on_device(assembly, bias)


def on_device(assembly: Assembly, values: Any) -> Tensor:
    """Numbers as a float32 tensor on the device."""
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(assembly.device)


def decay_rate(assembly: Assembly, path: str) -> Tensor:
    """-exp of a slot of decay logs, float32 [H]."""
    return on_device(assembly, -np.exp(assembly.weights.floats(path)))


def check_widths(path: str, **widths: int) -> None:
    """Raise RefusedError for a width that a kernel's tile cannot have."""
    for name, width in widths.items():
        if width < 16 or width & (width - 1):
            raise RefusedError(f"{path} has a {name} of {width:,}; the CUDA backend takes powers of two from 16 on.")


def _packed(values: Tensor) -> bytes:
    return bytes(values.contiguous().view(torch.uint8).numpy().tobytes())


def _unpacked(data: bytes, shape: tuple[int, ...], dtype: Any) -> Tensor:
    if len(data) != prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes are not {list(shape)} of {dtype}")
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)
