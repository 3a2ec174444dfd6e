"""What blocks are built with, and what they are to the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tensorfold.adapters.cuda.rows import Chunk, Rows, Tensor
from tensorfold.domain.families.ops import Op
from tensorfold.domain.families.state import StateEntry, op_state
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.kernels.cuda.delta_steps import Form, Steps

Pairs = Sequence[tuple[int, int]]


class Block(Protocol):
    """One op over the rows of a round or of a prompt's span."""

    def decode(self, x: Tensor, at: Rows) -> Tensor:
        """Rows [R, D] behind the norm; each result's bits follow from its own row and state alone."""
        ...

    def prompt(self, x: Tensor, at: Chunk) -> Tensor:
        """Rows [T, D] of one span, whose state the lane holds afterwards."""
        ...


class KeyBlock(Protocol):
    """A block whose lanes hold keys and values in pages."""

    def move(self, moves: Tensor, table: Tensor) -> None:
        """`moves` int32 [M, 3]: lane slot, key slot it lies in, one it belongs in; in order. `table`: see `Rows`."""
        ...

    def copy_pages(self, pairs: Pairs) -> None:
        """Whole pages, (from, to) each."""
        ...

    def export(self, pages: Sequence[int], length: int) -> tuple[bytes, ...]:
        """Keys, then values, of the first `length` positions of a lane's pages."""
        ...

    def load(self, pages: Sequence[int], parts: Sequence[bytes], length: int) -> None:
        """Write them into a lane's pages."""
        ...


@runtime_checkable
class RecurrentBlock(Protocol):
    """A block whose lanes hold a state, and the last inputs of its convolution in a ring."""

    def replay(self, at: Rows) -> None:
        """Run the schedule alone: nothing of it has a result."""
        ...

    def copy_place(self, source: int, target: int) -> None:
        """One place's state into another's."""
        ...

    def copy_ring(self, pairs: Pairs) -> None:
        """Flat ring rows, (from, to) each."""
        ...

    def clear(self, place: int) -> None:
        """Make a place the state behind no token."""
        ...

    def export(self, place: int, last: Sequence[int]) -> tuple[bytes, ...]:
        """The last inputs [3, C] at flat ring rows `last` (-1: zeros), then the state."""
        ...

    def load(self, place: int, last: Sequence[int], parts: Sequence[bytes]) -> None:
        """Write them."""
        ...


class DeltaLaunches(Protocol):
    """What launches gated delta steps: `kernels/cuda/delta_steps.DeltaKernels`."""

    def expect(self, form: Form, lanes: int) -> None:
        """Say early that a form will be launched for up to so many lanes."""
        ...

    def launch(self, form: Form, steps: Steps, stream: int, early: bool) -> None:
        """Queue the steps of lanes by their schedules on a stream, given by its address."""
        ...


@dataclass(slots=True)
class Assembly:
    """The parts of a model while it is put together.

    `weights` reads slots, `products` makes matrices that multiply rows, `delta` launches gated delta steps (None: the
    plan has none). `keyed` and `recurrent` list the blocks that hold lane states, `entries` what an image of a lane
    holds, all in the order of the plan's `state_spec`.
    """

    weights: Any
    products: Any
    room: Room
    device: Any
    dtype: Any
    activation: str
    delta: DeltaLaunches | None = None
    keyed: list[KeyBlock] = field(default_factory=list)
    recurrent: list[RecurrentBlock] = field(default_factory=list)
    order: list[KeyBlock | RecurrentBlock] = field(default_factory=list)
    entries: list[StateEntry] = field(default_factory=list)

    def keep_keys(self, block: KeyBlock, op: Op, path: str) -> None:
        """Enter a block that holds keys."""
        self.keyed.append(block)
        self._enter(block, op, path)

    def keep_state(self, block: RecurrentBlock, op: Op, path: str) -> None:
        """Enter a block that holds a recurrent state."""
        self.recurrent.append(block)
        self._enter(block, op, path)

    def _enter(self, block: KeyBlock | RecurrentBlock, op: Op, path: str) -> None:
        self.order.append(block)
        self.entries.extend(op_state(op, path, self.activation))
