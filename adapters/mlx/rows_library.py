"""Rows through MLX's own operations: a Mac's GPU, or a CPU when matrices stay as stored.

MLX may choose another kernel for another row count, so nothing here promises equal bits: the load check measures at
which widths they are equal on this device, and one row a round is always right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.balance import balanced
from tensorfold.adapters.mlx.blocks.key_values_library import LibraryKeyValues, array_bytes, array_of
from tensorfold.adapters.mlx.reads import Reads
from tensorfold.adapters.mlx.reads_library import read_past, score_blocks
from tensorfold.adapters.mlx.rows import Grouped, Product, Step
from tensorfold.adapters.mlx.scans import run_rows
from tensorfold.adapters.mlx.states import Buffered
from tensorfold.adapters.mlx.weights import Codes, Matrix, Stack, Values
from tensorfold.domain.families.ops import Attention

DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


class LibraryRows:
    """`RowOps` of MLX's default device, with rows of `dtype`.

    Dense matrices are held in that dtype too, or, with `as_stored`, in their own, to which rows are then rounded.
    """

    xp: Any = mx
    detail = "mlx rows"

    def __init__(self, dtype: str, *, as_stored: bool = False) -> None:
        self.dtype = dtype
        self._dtype, self._as_stored = DTYPES[dtype], as_stored
        self._table: tuple[Codes | Values, tuple[mx.array, ...]] | None = None

    def embedding(self, matrix: Matrix) -> Callable[[NDArray[np.int64]], mx.array]:
        """Rows of the table; affine rows are gathered, then unpacked."""
        stored, placed = matrix.stored, self._placed(matrix.stored)
        self._table = (stored, placed)
        if isinstance(stored, Values):
            (table,) = placed
            return lambda ids: table[mx.array(ids)].astype(self._dtype)
        words, scales, biases = placed
        group, bits = stored.group, stored.bits

        def look_up(ids: NDArray[np.int64]) -> mx.array:
            at = mx.array(ids)
            rows = mx.dequantize(words[at], scales[at], biases[at], group_size=group, bits=bits)
            return rows.astype(self._dtype)

        return look_up

    def product(self, matrices: Sequence[Matrix]) -> Product[mx.array]:
        """One MLX product for each matrix, results side by side."""
        return _side_by_side([self._one(matrix) for matrix in matrices])

    def float32_product(self, matrices: Sequence[Matrix]) -> Product[mx.array]:
        """The same with weights, scales and rows in float32."""
        exact = self if self.dtype == "float32" and not self._as_stored else LibraryRows("float32")
        return _side_by_side([exact._one(matrix) for matrix in matrices])

    def _one(self, matrix: Matrix) -> Product[mx.array]:
        stored, placed = matrix.stored, self._placed(matrix.stored)
        bias = None if matrix.bias is None else mx.array(matrix.bias).astype(self._dtype)
        _settle(bias)
        if isinstance(stored, Values):
            (weight,) = placed

            def dense(rows: mx.array) -> mx.array:
                made = (rows.astype(weight.dtype) @ weight.T).astype(self._dtype)
                return made if bias is None else made + bias

            return dense
        words, scales, biases = placed
        # Captured as numbers: a closure over `stored` would keep the host's copy of the codes beside the device's.
        group, bits = stored.group, stored.bits

        def affine(rows: mx.array) -> mx.array:
            made = mx.quantized_matmul(rows, words, scales, biases, transpose=True, group_size=group, bits=bits).astype(
                self._dtype
            )
            return made if bias is None else made + bias

        return affine

    def grouped(self, stack: Stack) -> Grouped[mx.array]:
        """One gathered MLX product."""
        stored = stack.stored
        bias = None if stack.bias is None else mx.array(stack.bias).astype(self._dtype)
        if isinstance(stored, Values):
            weight = self._dense(stored).swapaxes(-1, -2)
            if mx.default_device() == mx.cpu:
                weight = weight.astype(mx.float32)  # all that MLX gathers dense matrices in on a CPU
            _settle(weight, bias)

            def multiply(rows: mx.array, ids: mx.array) -> mx.array:
                return mx.gather_mm(rows[..., None, :].astype(weight.dtype), weight, rhs_indices=ids)

        else:
            words, scales, biases = self._codes(stored)
            group, bits = stored.group, stored.bits
            _settle(words, scales, biases, bias)

            def multiply(rows: mx.array, ids: mx.array) -> mx.array:
                return mx.gather_qmm(
                    rows[..., None, :],
                    words,
                    scales,
                    biases,
                    rhs_indices=ids,
                    transpose=True,
                    group_size=group,
                    bits=bits,
                )

        def gathered(rows: mx.array, ids: mx.array) -> mx.array:
            made = multiply(rows, ids)[..., 0, :].astype(self._dtype)
            return made if bias is None else made + bias[ids]

        return gathered

    def per_head(self, stack: Stack, *, back: bool) -> Product[mx.array]:
        """One MLX product over all heads."""
        stored = stack.stored
        if isinstance(stored, Values):
            weight = self._dense(stored)
            weight = weight if back else weight.swapaxes(-1, -2)
            _settle(weight)

            def multiply(rows: mx.array) -> mx.array:
                return rows.astype(weight.dtype) @ weight

        else:
            words, scales, biases = self._codes(stored)
            group, bits = stored.group, stored.bits
            _settle(words, scales, biases)

            def multiply(rows: mx.array) -> mx.array:
                return mx.quantized_matmul(rows, words, scales, biases, transpose=not back, group_size=group, bits=bits)

        return lambda rows: multiply(rows.swapaxes(0, 1)).astype(self._dtype).swapaxes(0, 1)

    def _placed(self, stored: Codes | Values) -> tuple[mx.array, ...]:
        """A matrix's arrays, those of the embedding again for the head that is tied to it and built next."""
        table, self._table = self._table, None
        if table is not None and table[0] is stored:
            return table[1]
        placed = (self._dense(stored),) if isinstance(stored, Values) else self._codes(stored)
        _settle(*placed)
        return placed

    def _dense(self, values: Values) -> mx.array:
        raw = mx.array(values.raw)
        weight = raw.view(mx.bfloat16) if values.dtype == "BF16" else raw
        return weight if self._as_stored else weight.astype(self._dtype)

    def _codes(self, codes: Codes) -> tuple[mx.array, mx.array, mx.array]:
        """Words, scales and biases; scales in the rows' dtype, since theirs would decide it."""
        words, scales, biases = mx.array(codes.words), mx.array(codes.scales), mx.array(codes.biases)
        return words, scales.astype(self._dtype), biases.astype(self._dtype)

    def constant(self, values: NDArray[np.float32]) -> mx.array:
        """In the rows' dtype."""
        made = mx.array(values).astype(self._dtype)
        _settle(made)
        return made

    def float32(self, values: NDArray[np.float32]) -> mx.array:
        """In float32 whatever the rows' dtype."""
        made = mx.array(values)
        _settle(made)
        return made

    def wide(self, rows: mx.array) -> mx.array:
        """In float32."""
        return rows.astype(mx.float32)

    def narrow(self, rows: mx.array) -> mx.array:
        """In the rows' dtype."""
        return rows.astype(self._dtype)

    def norm(self, rows: mx.array, weight: mx.array | None, eps: float) -> mx.array:
        """RMS norm over the last axis."""
        return mx.fast.rms_norm(rows, weight, eps)

    def add(self, left: mx.array, right: mx.array) -> mx.array:
        """Elementwise sum."""
        return left + right

    def scale(self, rows: mx.array, factor: float) -> mx.array:
        """Every value times `factor`."""
        return rows * mx.array(factor, dtype=self._dtype)

    def columns(self, rows: mx.array, start: int, stop: int) -> mx.array:
        """Columns start..stop."""
        return rows[:, start:stop]

    def heads(self, rows: mx.array, count: int) -> mx.array:
        """[R, count, D]."""
        return rows.reshape(rows.shape[0], count, -1)

    def turn(self, heads: mx.array, cos: mx.array, sin: mx.array, interleaved: bool) -> mx.array:
        """Rotary embedding, in float32 between two roundings."""
        half = cos.shape[-1]
        wide = heads.astype(mx.float32)
        if interleaved:
            first, second = wide[..., 0 : 2 * half : 2], wide[..., 1 : 2 * half : 2]
            pairs = mx.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
            turned = [pairs.reshape(*heads.shape[:-1], 2 * half)]
        else:
            first, second = wide[..., :half], wide[..., half : 2 * half]
            turned = [first * cos - second * sin, second * cos + first * sin]
        return mx.concatenate([*turned, wide[..., 2 * half :]], axis=-1).astype(heads.dtype)

    def sigmoid(self, rows: mx.array) -> mx.array:
        """1 / (1 + exp(-x))."""
        return mx.sigmoid(rows)

    def softmax(self, rows: mx.array) -> mx.array:
        """exp(x) over its sum along the last axis."""
        return mx.softmax(rows.astype(mx.float32), axis=-1, precise=True)

    def balance(self, square: mx.array, iterations: int, eps: float) -> mx.array:
        """Two small operations for every division."""
        return balanced(square, iterations, eps)

    def gated_silu(self, gate: mx.array, up: mx.array) -> mx.array:
        """gate * sigmoid(gate) * up."""
        return gate * mx.sigmoid(gate) * up

    def take(self, rows: mx.array, index: NDArray[np.int64]) -> mx.array:
        """Entries of the first axis."""
        return rows[mx.array(index)]

    def pick(self, rows: mx.array, index: Sequence[int]) -> mx.array:
        """Some rows."""
        return rows[mx.array(list(index))]

    def span(self, rows: mx.array, start: int, stop: int) -> mx.array:
        """Rows start..stop."""
        return rows[start:stop]

    def join(self, parts: Sequence[mx.array]) -> mx.array:
        """Parts one below another."""
        return parts[0] if len(parts) == 1 else mx.concatenate(list(parts), axis=0)

    def key_values(self, op: Attention, capacity: int) -> LibraryKeyValues:
        """Empty state of an attention layer."""
        return LibraryKeyValues(op, capacity, self._dtype)

    def put(self, buffer: mx.array, rows: mx.array, at: int) -> mx.array:
        """A new array; MLX writes it in place where nothing else holds the old one."""
        return mx.slice_update(buffer, rows.swapaxes(0, 1).astype(buffer.dtype), mx.array([at]), axes=[1])

    def twin(self, buffer: mx.array) -> mx.array:
        """The same: arrays are values."""
        return buffer

    def read(
        self, queries: mx.array, keys: Sequence[mx.array], values: Sequence[mx.array], reads: Reads[mx.array]
    ) -> mx.array:
        """One masked MLX attention."""
        return read_past(queries, keys, values, reads)

    def block_scores(self, queries: mx.array, keys: Sequence[mx.array], weights: mx.array | None) -> mx.array:
        """One MLX product."""
        return score_blocks(queries, keys, weights)

    def scan(
        self, step: Step, inputs: Sequence[mx.array], start: mx.array, parents: Sequence[int]
    ) -> tuple[mx.array, mx.array]:
        """One row after another."""
        return run_rows(step, inputs, start, parents, mx.stack)

    def pack(self, rows: mx.array) -> bytes:
        """The values' bytes; bfloat16 has no host form, so its bits travel as uint16."""
        return array_bytes(rows)

    def unpack(self, data: bytes, shape: tuple[int, ...], dtype: str) -> mx.array:
        """The inverse of `pack`."""
        return array_of(data, shape, DTYPES[dtype])

    def settle(self, states: Sequence[Buffered[mx.array]]) -> None:
        """Evaluate the buffers, so that graphs do not grow from slice to slice."""
        mx.eval([buffer for state in states for buffer in state.buffers()])

    def start(self, *rows: mx.array) -> None:
        """Queue their graphs."""
        mx.async_eval(*rows)  # type: ignore[no-untyped-call]

    def host(self, rows: mx.array) -> NDArray[np.float32]:
        """Wait, and copy to the host."""
        return np.array(rows.astype(mx.float32), copy=True)

    def close(self) -> None:
        """Hand freed buffers back to the system."""
        mx.clear_cache()


def _side_by_side(parts: Sequence[Product[mx.array]]) -> Product[mx.array]:
    if len(parts) == 1:
        return parts[0]
    return lambda rows: mx.concatenate([part(rows) for part in parts], axis=-1)


def _settle(*arrays: mx.array | None) -> None:
    """Evaluate now: a lazy array could not leave the thread, and would hold the file's bytes."""
    mx.eval([array for array in arrays if array is not None])
