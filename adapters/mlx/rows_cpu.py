"""Rows on a CPU, in float32 numpy over its BLAS.

MLX's CPU build multiplies with plain loops: sixteen rows cost it five times one row, and one row several times what a
BLAS takes. So products and attention go through `kernels.cpu`, whose call sizes are measured to keep a row's bits.
Matrices too large to be held in float32 stay as stored and go through MLX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.blocks.key_values_cpu import CpuKeyValues
from tensorfold.adapters.mlx.rows import KeyValues, Product
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.weights import Codes, Matrix, Values, as_float32
from tensorfold.domain.families.ops import Attention
from tensorfold.kernels.cpu.attention import BlockedAttention
from tensorfold.kernels.cpu.elementwise import gated_silu, rms_norm, rotate
from tensorfold.kernels.cpu.product import RowProduct
from tensorfold.kernels.cpu.workers import Workers

Rows = NDArray[np.float32]


class CpuRows:
    """`RowOps` of a CPU. With `unpack` False every matrix stays as stored."""

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

    def _values(self, matrix: Matrix) -> Rows:
        """The matrix in float32; the last one is remembered, since a tied head follows its embedding."""
        if self._unpacked is None or self._unpacked[0] is not matrix:
            self._unpacked = (matrix, unpacked(matrix))
        return self._unpacked[1]

    def constant(self, values: NDArray[np.float32]) -> Rows:
        """As given."""
        return np.ascontiguousarray(values, np.float32)

    def angles(self, values: NDArray[np.float32]) -> Rows:
        """As given."""
        return values

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
        """A view of columns."""
        return rows[:, start:stop]

    def heads(self, rows: Rows, count: int) -> Rows:
        """A contiguous [R, count, D]."""
        return np.ascontiguousarray(rows).reshape(len(rows), count, -1)

    def turn(self, heads: Rows, cos: Rows, sin: Rows, interleaved: bool) -> Rows:
        """Rotary embedding."""
        return rotate(heads, cos, sin, interleaved)

    def gated_silu(self, gate: Rows, up: Rows) -> Rows:
        """gate * sigmoid(gate) * up."""
        return gated_silu(gate, up)

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
        reader = self._readers.get(op.head_dim)
        if reader is None:
            reader = self._readers[op.head_dim] = BlockedAttention(op.head_dim, self._workers)
        return CpuKeyValues(reader, op, capacity)

    def settle(self, states: Sequence[KeyValues[Rows]]) -> None:
        """Nothing: states are computed as they are written."""

    def start(self, rows: Rows) -> None:
        """Nothing: rows are computed as they are asked for."""

    def host(self, rows: Rows) -> NDArray[np.float32]:
        """As they are."""
        return np.ascontiguousarray(rows)

    def close(self) -> None:
        """End the threads that share the arithmetic."""
        self._workers.close()


def unpacked(matrix: Matrix) -> Rows:
    """A stored matrix in float32 [N, K]; affine codes as scale * code + bias in float32."""
    stored = matrix.stored
    if isinstance(stored, Values):
        return as_float32(stored)
    return _decoded(stored)


def _decoded(codes: Codes) -> Rows:
    words, scales, biases = mx.array(codes.words), mx.array(codes.scales), mx.array(codes.biases)
    values = mx.dequantize(words, scales, biases, group_size=codes.group, bits=codes.bits)
    return np.array(values, copy=True)


def _with_bias(product: RowProduct, matrices: Sequence[Matrix]) -> Product[Rows]:
    if all(matrix.bias is None for matrix in matrices):
        return product
    parts = [np.zeros(m.shape[0], np.float32) if m.bias is None else m.bias for m in matrices]
    bias = np.concatenate(parts)
    return lambda rows: product(rows) + bias
