"""What a layer holds for one lane: committed state, and the rows of a launch until they are kept or forgotten.

One `LayerState` for each op that has entries in the plan's state spec; its buffers are exported and loaded in the
order of those entries. Knows no ticket and no draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tensorfold.adapters.mlx.layouts import Layout

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
Path = tuple[int, ...]


class Buffered(Protocol[A_co]):
    """What holds arrays."""

    def buffers(self) -> Sequence[A_co]:
        """Arrays that are to be computed before a prompt goes on, so that graphs do not grow from slice to slice."""
        ...


class LayerState(Buffered[A_co], Protocol[A_co]):
    """State of one op in one lane after `length` committed rows, then those of a launch."""

    @property
    def length(self) -> int:
        """Rows committed."""
        ...

    def keep(self, path: Path) -> None:
        """Commit these rows of the window, in this order, and forget the others."""
        ...

    def discard(self) -> None:
        """Forget the window."""
        ...

    def fork(self) -> LayerState[A_co]:
        """An independent copy of the committed rows."""
        ...

    def export(self) -> tuple[bytes, ...]:
        """The committed state that can still be read, one buffer for each entry of the op's state spec."""
        ...

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become a layer that absorbed `length` tokens; the inverse of `export`. Raises ValueError on a wrong size."""
        ...

    def held_bytes(self) -> int:
        """Bytes of the buffers."""
        ...


class KeyValues(LayerState[A], Protocol[A]):
    """Keys and values of one attention layer in one lane."""

    def fork(self) -> KeyValues[A]:
        """An independent copy of the committed rows."""
        ...

    def attend(self, queries: A, keys: A, values: A, layout: Layout) -> A:
        """Read with `queries` [R, H, D] over the committed rows and the window's own `keys`, `values` [R, G, D].

        The window's rows stay provisional until `keep`. Result [R, H * D].
        """
        ...
