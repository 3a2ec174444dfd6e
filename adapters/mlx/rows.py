"""What a block asks of a device: the few operations on rows it is made of.

A block is written once; `rows_cpu` runs it in numpy, `rows_library` through MLX. `A` is the device's array of rows
[R, K]; blocks never look inside one. Every operation must give a row bits that do not depend on the rows beside it, or
the load check will find the widths at which it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.adapters.mlx.weights import Matrix
from tensorfold.domain.families.ops import Attention

A = TypeVar("A")
Product = Callable[[A], A]
Path = tuple[int, ...]


class KeyValues(Protocol[A]):
    """Keys and values of one attention layer in one lane: `length` committed rows, then those of a launch."""

    length: int

    def attend(self, queries: A, keys: A, values: A, layout: Layout) -> A:
        """Read with `queries` [R, H, D] over the committed rows and the window's own `keys`, `values` [R, G, D].

        The window's rows stay provisional until `keep`. Result [R, H * D].
        """
        ...

    def keep(self, path: Path) -> None:
        """Commit these rows of the window, in this order, and forget the others."""
        ...

    def discard(self) -> None:
        """Forget the window."""
        ...

    def fork(self) -> KeyValues[A]:
        """An independent copy of the committed rows."""
        ...

    def export(self) -> tuple[bytes, bytes]:
        """The committed rows that can still be read, keys and values, each [tokens, G, D] in the rows' dtype."""
        ...

    def load(self, keys: bytes, values: bytes, length: int) -> None:
        """Become a layer that absorbed `length` tokens; the inverse of `export`. Raises ValueError on a wrong size."""
        ...

    def held_bytes(self) -> int:
        """Bytes of the buffers."""
        ...


class RowOps(Protocol[A]):
    """Operations on rows of one device; `dtype` is that of rows and state."""

    @property
    def dtype(self) -> str:
        """`float32`, `bfloat16` or `float16`."""
        ...

    @property
    def detail(self) -> str:
        """What else decides a row's bits here, in a few words, for the engine's identity."""
        ...

    def embedding(self, matrix: Matrix) -> Callable[[NDArray[np.int64]], A]:
        """A lookup of rows by id."""
        ...

    def product(self, matrices: Sequence[Matrix]) -> Product[A]:
        """x times each matrix transposed plus its bias, results side by side."""
        ...

    def constant(self, values: NDArray[np.float32]) -> A:
        """A device array of these values, in the dtype of norms."""
        ...

    def angles(self, values: NDArray[np.float32]) -> A:
        """A device array of cosines or sines, in float32 whatever the rows' dtype."""
        ...

    def norm(self, rows: A, weight: A | None, eps: float) -> A:
        """RMS norm over the last axis."""
        ...

    def add(self, left: A, right: A) -> A:
        """Elementwise sum."""
        ...

    def scale(self, rows: A, factor: float) -> A:
        """Every value times `factor`, which is rounded to the rows' dtype first."""
        ...

    def columns(self, rows: A, start: int, stop: int) -> A:
        """Columns start..stop of every row."""
        ...

    def heads(self, rows: A, count: int) -> A:
        """[R, count * D] seen as [R, count, D]."""
        ...

    def turn(self, heads: A, cos: A, sin: A, interleaved: bool) -> A:
        """Rotary embedding of [R, H, D] by [R, 1, d / 2]."""
        ...

    def gated_silu(self, gate: A, up: A) -> A:
        """gate * sigmoid(gate) * up."""
        ...

    def pick(self, rows: A, index: Sequence[int]) -> A:
        """The rows at these places, in this order."""
        ...

    def span(self, rows: A, start: int, stop: int) -> A:
        """Rows start..stop along the first axis."""
        ...

    def join(self, parts: Sequence[A]) -> A:
        """Parts one below another."""
        ...

    def key_values(self, op: Attention, capacity: int) -> KeyValues[A]:
        """Empty state of an attention layer that will absorb at most `capacity` tokens."""
        ...

    def settle(self, states: Sequence[KeyValues[A]]) -> None:
        """Wait until these states are computed."""
        ...

    def start(self, rows: A) -> None:
        """Begin computing, where the device runs beside the host."""
        ...

    def host(self, rows: A) -> NDArray[np.float32]:
        """Wait, and copy to the host as float32."""
        ...

    def close(self) -> None:
        """Free what the device holds beside arrays; nothing is computed after it."""
        ...
