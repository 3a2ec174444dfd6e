"""The slots below one path, and the one function that every op's reference is registered with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.ops import Norm, Op
from tensorfold.kernels.reference.linear import linear
from tensorfold.kernels.reference.norm import layer_norm, rms_norm
from tests.reference.lane import RowContext
from tests.reference.slot_reader import SlotReader

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots below one path; `[name]` gives the values, `linear` and `norm` apply them."""

    reader: SlotReader
    path: str

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.reader[f"{self.path}.{name}" if self.path else name]

    def below(self, name: str) -> Slots:
        """The slots one name further down."""
        return Slots(self.reader, f"{self.path}.{name}" if self.path else name)

    def full(self, name: str) -> str:
        """The whole path of a slot or buffer."""
        return f"{self.path}.{name}"

    def linear(self, name: str, row: Floats) -> Floats:
        """A projection with its bias."""
        return linear(row, self[name], self.reader.bias(f"{self.path}.{name}" if self.path else name))

    def norm(self, name: str, norm: Norm | None, row: Floats) -> Floats:
        """A norm, or the row as it is where there is none."""
        if norm is None:
            return row
        if norm.layer:
            bias = self.reader.bias(f"{self.path}.{name}")
            assert bias is not None
            return layer_norm(row, self[name], bias, norm.eps)
        return rms_norm(row, self[name] if norm.weight else None, norm.eps, norm.groups)


@singledispatch
def apply(op: Op, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    """What an op makes of a row [D], or a hashed table of all streams [S, D]; `residual` is the row before its norm."""
    raise TypeError(f"{type(op).__name__} has no reference")
