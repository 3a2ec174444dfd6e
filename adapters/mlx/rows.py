"""What a block asks of a device: the few operations on rows it is made of.

A block is written once; `rows_cpu` runs it in numpy, `rows_library` through MLX. `A` is the device's array of rows
[R, K]. What both libraries spell alike a block computes itself through `xp`. Every operation must give a row bits that
do not depend on the rows beside it, or the load check will find the widths at which it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.reads import Reads
from tensorfold.adapters.mlx.states import Buffered, KeyValues
from tensorfold.adapters.mlx.weights import Matrix, Stack
from tensorfold.domain.families.ops import Attention

A = TypeVar("A")
Product = Callable[[A], A]
Grouped = Callable[[A, A], A]
Step = Callable[[Any, tuple[Any, ...]], tuple[Any, Any]]
"""A recurrence: (state, one row's inputs) to (state, the row's output), in float32, from names that xp has."""


class RowOps(Protocol[A]):
    """Operations on rows of one device; `dtype` is that of rows and state."""

    xp: Any
    """The array library, numpy or mlx.core. Only names that mean the same in both are used."""

    @property
    def dtype(self) -> str:
        """`float32`, `bfloat16` or `float16`."""
        ...

    @property
    def detail(self) -> str:
        """What else decides a row's bits here, in a few words, for the engine's identity."""
        ...

    # -- weights ---------------------------------------------------------------------------------------------------

    def embedding(self, matrix: Matrix) -> Callable[[NDArray[np.int64]], A]:
        """A lookup of rows by id."""
        ...

    def product(self, matrices: Sequence[Matrix]) -> Product[A]:
        """x times each matrix transposed plus its bias, results side by side."""
        ...

    def float32_product(self, matrices: Sequence[Matrix]) -> Product[A]:
        """The same in float32 whatever the rows' dtype, for choices, whose near ties no rounding may move."""
        ...

    def grouped(self, stack: Stack) -> Grouped[A]:
        """Rows [R, 1 or k, K] times the transposed matrices that integers [R, k] name, plus their biases: [R, k, N]."""
        ...

    def per_head(self, stack: Stack, *, back: bool) -> Product[A]:
        """Rows [R, H, K], each head's through a matrix of its own, to [R, H, N].

        Matrices are [N, K], outputs first, or [K, N] with `back`, when they are multiplied with as they stand.
        """
        ...

    def constant(self, values: NDArray[np.float32]) -> A:
        """A device array of these values, in the dtype of norms."""
        ...

    def float32(self, values: NDArray[np.float32]) -> A:
        """A device array of these values, in float32 whatever the rows' dtype."""
        ...

    # -- rows ------------------------------------------------------------------------------------------------------

    def wide(self, rows: A) -> A:
        """In float32."""
        ...

    def narrow(self, rows: A) -> A:
        """In the rows' dtype."""
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

    def sigmoid(self, rows: A) -> A:
        """1 / (1 + exp(-x))."""
        ...

    def softmax(self, rows: A) -> A:
        """exp(x) over its sum along the last axis, in float32."""
        ...

    def balance(self, square: A, iterations: int, eps: float) -> A:
        """Float32 matrices [R, S, S] made nearly doubly stochastic.

        Columns are divided by their sums plus `eps`, then `iterations` - 1 times rows and columns in turn.
        """
        ...

    def gated_silu(self, gate: A, up: A) -> A:
        """gate * sigmoid(gate) * up."""
        ...

    def take(self, rows: A, index: NDArray[np.int64]) -> A:
        """Entries of the first axis at `index` of any shape."""
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

    # -- state -----------------------------------------------------------------------------------------------------

    def key_values(self, op: Attention, capacity: int) -> KeyValues[A]:
        """Empty state of an attention layer that will absorb at most `capacity` tokens."""
        ...

    def put(self, buffer: A, rows: A, at: int) -> A:
        """`buffer` [G, T, D] with `rows` [R, G, D] from slot `at` on, rounded to its dtype; the old one is gone."""
        ...

    def twin(self, buffer: A) -> A:
        """A buffer that later calls of `put` on the other leave alone."""
        ...

    def read(self, queries: A, keys: Sequence[A], values: Sequence[A], reads: Reads[A]) -> A:
        """Softmax attention of `queries` [R, H, D] over the keys that each row reads: [R, H, D].

        `keys` and `values` are parts [G, T, D] that stand one behind another from position 0; they may be the same.
        """
        ...

    def block_scores(self, queries: A, keys: Sequence[A], weights: A | None) -> A:
        """Scores [R, B] of keys, parts [1, B, D]: over heads of float32 `queries` [R, H, D] the sum of relu(q . k).

        Each head counts times its entry of `weights` [R, H]. In float32.
        """
        ...

    def scan(self, step: Step, inputs: Sequence[A], start: A, parents: Sequence[int]) -> tuple[A, A]:
        """Run a recurrence over rows of `inputs`, [R, ...] each: outputs [R, ...] and the state after the last row.

        Row r goes on from the state behind row `parents[r]`, or from `start` where that is -1. All is float32.
        """
        ...

    def pack(self, rows: A) -> bytes:
        """An array's bytes, in row order and its own dtype."""
        ...

    def unpack(self, data: bytes, shape: tuple[int, ...], dtype: str) -> A:
        """The inverse of `pack`."""
        ...

    def settle(self, states: Sequence[Buffered[A]]) -> None:
        """Wait until these states are computed."""
        ...

    def start(self, *rows: A) -> None:
        """Begin computing these, where the device runs beside the host."""
        ...

    def host(self, rows: A) -> NDArray[np.float32]:
        """Wait, and copy to the host as float32."""
        ...

    def close(self) -> None:
        """Free what the device holds beside arrays; nothing is computed after it."""
        ...
