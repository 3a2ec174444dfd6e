"""The rows of one forward pass: whose they are, where they stand, and what blocks prepare once for all layers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.domain.families.ops import Rope

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Segment(Generic[A]):
    """One lane's rows start..stop of the pass, and that lane's states, one entry for each op that has one.

    A block knows the place of its own state and what kind it is, so the entries are not typed here.
    """

    states: tuple[Any, ...]
    layout: Layout
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class RowContext(Generic[A]):
    """`ids` and absolute `positions` of all rows [R]; `turns` holds cosines and sines by rotary plan."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    segments: tuple[Segment[A], ...]
    turns: dict[Rope, tuple[A, A]] = field(default_factory=dict)
