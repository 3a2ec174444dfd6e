"""Rows on a CPU, in float32 numpy over its BLAS.

MLX's CPU build multiplies with plain loops: sixteen rows cost it five times one row, and one row several times what a
BLAS takes. So products and attention go through `kernels.cpu`, whose call sizes are measured to keep a row's bits.
Matrices too large to be held in float32 stay as stored and go through MLX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.balance import balanced
from tensorfold.adapters.mlx.blocks.key_values_cpu import CpuKeyValues
from tensorfold.adapters.mlx.reads import Reads
from tensorfold.adapters.mlx.reads_cpu import read_past, score_blocks
from tensorfold.adapters.mlx.rows import Grouped, Product, Step
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.scans import run_rows
from tensorfold.adapters.mlx.states import Buffered
from tensorfold.adapters.mlx.weights import Codes, Matrix, Stack, Values, as_float32
from tensorfold.domain.families.ops import Attention
from tensorfold.kernels.cpu.attention import BlockedAttention
from tensorfold.kernels.cpu.elementwise import gated_silu, rms_norm, rotate, sigmoid
from tensorfold.kernels.cpu.grouped import GroupedProduct
from tensorfold.kernels.cpu.product import RowProduct
from tensorfold.kernels.cpu.workers import Workers

Rows = NDArray[np.float32]


class CpuRows:
    """`RowOps` of a CPU. With `unpack` False every matrix stays as stored."""

    xp: Any = np
    dtype = "float32"

    def __init__(self, *, unpack: bool = True) -> None:
        self._unpack = unpack
        self._workers = Workers()
        self._library = LibraryRows("float32", as_stored=True)
        self._unpacked: tuple[Matrix, Rows] | None = None
        self._steps: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._readers: dict[int, BlockedAttention] = {}

    @property
    def detail(self) -> str:
        """The call sizes in use, by shape."""
        calls = {"x".join(map(str, shape)): steps for shape, steps in sorted(self._steps.items())}
        reads = {str(dim): reader.steps for dim, reader in sorted(self._readers.items())}
        return f"numpy rows; products {calls or 'through mlx'}; attention {reads}"

    def embedding(self, matrix: Matrix) -> Callable[[NDArray[np.int64]], Rows]:
        """Rows of the unpacked table, or through MLX."""
        if not self._unpack:
            look_up = self._library.embedding(matrix)
            return lambda ids: self._library.host(look_up(ids))
        table = self._values(matrix)
        return lambda ids: table[ids]

    def product(self, matrices: Sequence[Matrix]) -> Product[Rows]:
        """One BLAS product over all matrices stacked, or one MLX product for each."""
        if self._unpack:
            stacked = (
                self._values(matrices[0]) if len(matrices) == 1 else np.concatenate([*map(self._values, matrices)])
            )
            product = RowProduct(stacked, self._workers, self._steps.get(stacked.shape))
            self._steps[stacked.shape] = product.steps
            if product.steps:
                return _with_bias(product, matrices)
        through_mlx = self._library.product(matrices)
        return lambda rows: self._library.host(through_mlx(mx.array(rows)))

    def float32_product(self, matrices: Sequence[Matrix]) -> Product[Rows]:
        """As any product, unless matrices stay as stored: those may round rows to their own dtype."""
        if self._unpack:
            return self.product(matrices)
        through_mlx = self._library.float32_product(matrices)
        return lambda rows: self._library.host(through_mlx(mx.array(rows)))

    def grouped(self, stack: Stack) -> Grouped[Rows]:
        """Each matrix once, for all rows that name it, in BLAS products as `product` makes them."""
        if not self._unpack:
            if isinstance(stack.stored, Values) and stack.stored.dtype != "F32":
                return self._pair_by_pair(stack.stored, stack)
            through_mlx = self._library.grouped(stack)
            return lambda rows, ids: self._library.host(through_mlx(mx.array(rows), mx.array(ids)))
        weights, bias = _unpacked(stack), stack.bias
        product = GroupedProduct(weights, self._workers, self._steps.get(weights.shape[1:]))
        self._steps[weights.shape[1:]] = product.steps

        def gathered(rows: Rows, ids: Any) -> Rows:
            made = product(rows, ids)
            return made if bias is None else made + bias[ids]

        return gathered

    def _pair_by_pair(self, stored: Values, stack: Stack) -> Grouped[Rows]:
        """Dense matrices left in half precision, which MLX gathers on no CPU: a product for each row and slot."""
        shape, biases = stack.shape[1:], stack.bias
        products = [
            self._library.product([Matrix(replace(stored, raw=raw), shape, None if biases is None else biases[entry])])
            for entry, raw in enumerate(stored.raw)
        ]

        def gathered(rows: Rows, ids: Any) -> Rows:
            wide = mx.array(np.broadcast_to(rows, (*ids.shape, rows.shape[-1])))
            made = [
                products[int(ids[row, slot])](wide[row, slot : slot + 1])
                for row in range(ids.shape[0])
                for slot in range(ids.shape[1])
            ]
            return self._library.host(mx.concatenate(made)).reshape(*ids.shape, -1)

        return gathered

    def per_head(self, stack: Stack, *, back: bool) -> Product[Rows]:
        """A BLAS product for each head, as `product` makes them."""
        if not self._unpack:
            through_mlx = self._library.per_head(stack, back=back)
            return lambda rows: self._library.host(through_mlx(mx.array(rows)))
        weights = as_float32(stack.stored)
        weights = np.ascontiguousarray(weights.swapaxes(-1, -2)) if back else weights
        products = []
        for weight in weights:
            product = RowProduct(weight, self._workers, self._steps.get(weight.shape))
            self._steps[weight.shape] = product.steps
            products.append(product)
        return lambda rows: np.stack(
            [product(np.ascontiguousarray(rows[:, head])) for head, product in enumerate(products)], axis=1
        )

    def _values(self, matrix: Matrix) -> Rows:
        """The matrix in float32; the last one is remembered, since a tied head follows its embedding."""
        if self._unpacked is None or self._unpacked[0] is not matrix:
            self._unpacked = (matrix, as_float32(matrix.stored))
        return self._unpacked[1]

    def constant(self, values: NDArray[np.float32]) -> Rows:
        """As given."""
        return np.ascontiguousarray(values, np.float32)

    def float32(self, values: NDArray[np.float32]) -> Rows:
        """As given."""
        return np.ascontiguousarray(values, np.float32)

    def wide(self, rows: Rows) -> Rows:
        """As it is."""
        return rows

    def narrow(self, rows: Rows) -> Rows:
        """As it is."""
        return rows

    def norm(self, rows: Rows, weight: Rows | None, eps: float) -> Rows:
        """RMS norm over the last axis."""
        return rms_norm(rows, weight, eps)

    def add(self, left: Rows, right: Rows) -> Rows:
        """Elementwise sum."""
        return left + right

    def scale(self, rows: Rows, factor: float) -> Rows:
        """Every value times `factor`."""
        return rows * np.float32(factor)

    def columns(self, rows: Rows, start: int, stop: int) -> Rows:
        """Columns, contiguous: numpy may take another loop over rows that lie apart."""
        return np.ascontiguousarray(rows[:, start:stop])

    def heads(self, rows: Rows, count: int) -> Rows:
        """A contiguous [R, count, D]."""
        return np.ascontiguousarray(rows).reshape(len(rows), count, -1)

    def turn(self, heads: Rows, cos: Rows, sin: Rows, interleaved: bool) -> Rows:
        """Rotary embedding."""
        return rotate(heads, cos, sin, interleaved)

    def sigmoid(self, rows: Rows) -> Rows:
        """1 / (1 + exp(-x))."""
        return sigmoid(rows)

    def softmax(self, rows: Rows) -> Rows:
        """exp(x) over its sum along the last axis."""
        made: Rows = np.exp(np.ascontiguousarray(rows - rows.max(axis=-1, keepdims=True)))
        made /= np.add.reduce(made, axis=-1, keepdims=True)
        return made

    def balance(self, square: Rows, iterations: int, eps: float) -> Rows:
        """Sums inside one matrix, in numpy's order for its shape."""
        return balanced(square, iterations, eps)

    def gated_silu(self, gate: Rows, up: Rows) -> Rows:
        """gate * sigmoid(gate) * up."""
        return gated_silu(gate, up)

    def take(self, rows: Rows, index: NDArray[np.int64]) -> Rows:
        """A copy of entries of the first axis."""
        return rows[index]

    def pick(self, rows: Rows, index: Sequence[int]) -> Rows:
        """A copy of some rows."""
        return rows[list(index)]

    def span(self, rows: Rows, start: int, stop: int) -> Rows:
        """A view of rows."""
        return rows[start:stop]

    def join(self, parts: Sequence[Rows]) -> Rows:
        """Parts one below another."""
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def key_values(self, op: Attention, capacity: int) -> CpuKeyValues:
        """Empty state of an attention layer."""
        return CpuKeyValues(self._reader(op.head_dim), op, capacity)

    def _reader(self, head_dim: int) -> BlockedAttention:
        reader = self._readers.get(head_dim)
        if reader is None:
            reader = self._readers[head_dim] = BlockedAttention(head_dim, self._workers)
        return reader

    def put(self, buffer: Rows, rows: Rows, at: int) -> Rows:
        """In place."""
        buffer[:, at : at + len(rows)] = rows.transpose(1, 0, 2)
        return buffer

    def twin(self, buffer: Rows) -> Rows:
        """A copy."""
        return buffer.copy()

    def read(self, queries: Rows, keys: Sequence[Rows], values: Sequence[Rows], reads: Reads[Rows]) -> Rows:
        """In blocks of keys; a row that chooses its keys by itself."""
        return read_past(self._reader(queries.shape[-1]), queries, keys, values, reads)

    def block_scores(self, queries: Rows, keys: Sequence[Rows], weights: Rows | None) -> Rows:
        """In blocks of keys."""
        return score_blocks(queries, keys, weights)

    def scan(self, step: Step, inputs: Sequence[Rows], start: Rows, parents: Sequence[int]) -> tuple[Rows, Rows]:
        """One row after another."""
        return run_rows(step, inputs, start, parents, np.stack)

    def pack(self, rows: Rows) -> bytes:
        """The values' bytes."""
        return np.ascontiguousarray(rows).tobytes()

    def unpack(self, data: bytes, shape: tuple[int, ...], dtype: str) -> Rows:
        """The inverse of `pack`."""
        return np.frombuffer(data, dtype).reshape(shape).copy()

    def settle(self, states: Sequence[Buffered[Rows]]) -> None:
        """Nothing: states are computed as they are written."""

    def start(self, *rows: Rows) -> None:
        """Nothing: rows are computed as they are asked for."""

    def host(self, rows: Rows) -> NDArray[np.float32]:
        """As they are."""
        return np.ascontiguousarray(rows)

    def close(self) -> None:
        """End the threads that share the arithmetic."""
        self._workers.close()


def _unpacked(stack: Stack) -> Rows:
    """The matrices in float32, decoded one by one so that no second copy of all of them exists."""
    stored = stack.stored
    if isinstance(stored, Values) and stored.dtype == "F32":
        return as_float32(stored)
    made = np.empty(stack.shape, np.float32)
    for entry in range(len(made)):
        if isinstance(stored, Values):
            one: Values | Codes = replace(stored, raw=stored.raw[entry])
        else:
            words, scales, biases = (part[entry] for part in (stored.words, stored.scales, stored.biases))
            one = replace(stored, words=words, scales=scales, biases=biases)
        made[entry] = as_float32(one)
    return made


def _with_bias(product: RowProduct, matrices: Sequence[Matrix]) -> Product[Rows]:
    if all(matrix.bias is None for matrix in matrices):
        return product
    parts = [np.zeros(m.shape[0], np.float32) if m.bias is None else m.bias for m in matrices]
    bias = np.concatenate(parts)
    return lambda rows: product(rows) + bias
