"""Rows through our own Metal kernels, whose bits depend on no other row; MLX's operations do the rest.

Every kernel is tried on this device before it is first used for a shape (`trust`), and left out where it does not hold.
The load check of the whole model follows, as on any other device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from tensorfold.adapters.mlx.blocks.gated_delta import delta_step
from tensorfold.adapters.mlx.blocks.key_values_library import LibraryKeyValues
from tensorfold.adapters.mlx.blocks.key_values_metal import MetalKeyValues, exact_reads
from tensorfold.adapters.mlx.blocks.mamba2 import mamba2_step
from tensorfold.adapters.mlx.rows import Grouped, Product, Step
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.trust import UNITS, Trust, close, exact_rows, same_bits, samples
from tensorfold.adapters.mlx.weights import Codes, Matrix, Stack, Values
from tensorfold.domain.families.ops import Attention
from tensorfold.kernels.metal import affine, dense, experts, gates, norms, recurrence
from tensorfold.kernels.metal.windows import window

MATRIX_FROM = 5
"""Rows from which the matrix form is the faster one where both forms share their bits; not measured on a Mac yet."""
_PROBED_ROWS = 5
_OUTPUTS, _EXPERTS = 64, 4
"""Outputs and experts of a matrix that are looked at; the others go through the same code."""


class MetalRows(LibraryRows):
    """`RowOps` of a Mac's GPU, with rows of `dtype`."""

    def __init__(self, dtype: str) -> None:
        super().__init__(dtype)
        self.trust = Trust()

    @property
    def detail(self) -> str:  # type: ignore[override]
        """Which kernels hold here."""
        return f"metal rows; {sorted((kind, str(shape), ok) for (kind, shape), ok in self.trust.answers.items())}"

    # -- products --------------------------------------------------------------------------------------------------

    def float32_product(self, matrices: Sequence[Matrix]) -> Product[mx.array]:
        """The same with weights, scales and rows in float32."""
        if self.dtype == "float32":
            return self.product(matrices)
        exact = MetalRows("float32")
        exact.trust = self.trust
        return exact.product(matrices)

    def _one(self, matrix: Matrix) -> Product[mx.array]:
        """The product of one matrix, by our kernel where it holds."""
        plain = super()._one(matrix)
        made = self._affine(matrix) if isinstance(matrix.stored, Codes) else self._plain(matrix, matrix.stored)
        return plain if made is None else _biased(made, matrix, self._dtype)

    def _affine(self, matrix: Matrix) -> Product[mx.array] | None:
        stored = matrix.stored
        assert isinstance(stored, Codes)
        bits, group, dtype = stored.bits, stored.group, self._dtype
        words, scales, biases = self._codes(stored)
        few = (words[:_OUTPUTS], scales[:_OUTPUTS], biases[:_OUTPUTS])
        shape = (self.dtype, bits, group, matrix.shape[1])

        def narrow(rows: mx.array) -> mx.array:
            return mx.quantized_matmul(rows, *few, transpose=True, group_size=group, bits=bits)

        rows = samples(_PROBED_ROWS, matrix.shape[1], dtype=dtype)
        if not self.trust.holds(
            "products of codes",
            shape,
            lambda: exact_rows(lambda x: affine.affine_matmul(x, *few, bits, group), rows, narrow),
        ):
            return None
        agree = self.trust.holds(
            "products of codes" + UNITS, shape, lambda: affine.forms_agree(rows, *few, bits, group)
        )
        start = MATRIX_FROM if agree else 0
        return lambda x: affine.affine_matmul(x, words, scales, biases, bits, group, dtype, start)

    def _plain(self, matrix: Matrix, values: Values) -> Product[mx.array] | None:
        weight, dtype = self._dense(values), self._dtype
        few, shape = weight[:_OUTPUTS], (self.dtype, matrix.shape[1], values.dtype)
        rows = samples(_PROBED_ROWS, matrix.shape[1], dtype=dtype)

        def plain(x: mx.array) -> mx.array:
            return (x.astype(weight.dtype) @ few.T).astype(dtype)

        if not self.trust.holds(
            "dense products", shape, lambda: exact_rows(lambda x: dense.dense_matmul(x, few), rows, plain)
        ):
            return None
        agree = self.trust.holds("dense products" + UNITS, shape, lambda: dense.dense_forms_agree(rows, few))
        start = MATRIX_FROM if agree else 0
        return lambda x: dense.dense_matmul(x, weight, dtype, start)

    def grouped(self, stack: Stack) -> Grouped[mx.array]:
        """Every pair of row and expert made as if it stood alone."""
        plain, stored = super().grouped(stack), stack.stored
        bias = None if stack.bias is None else mx.array(stack.bias).astype(self._dtype)
        product = self._of_experts(stored)

        def call(rows: mx.array, ids: mx.array) -> mx.array:
            order = experts.expert_order(ids.astype(mx.int32))
            made = product(rows.reshape(-1, rows.shape[-1]), order).reshape(*ids.shape, -1)
            return made if bias is None else made + bias[ids]

        rows = samples(3, 1, stack.shape[2], dtype=self._dtype)
        count = min(_EXPERTS, stack.shape[0])
        ids = mx.array([[row % count, (row + 1) % count] if count > 1 else [0] for row in range(3)])

        def probe() -> bool:
            together = call(rows, ids)
            alone = mx.concatenate([call(rows[r : r + 1], ids[r : r + 1]) for r in range(3)], axis=0)
            return same_bits(together, alone) and close(together, plain(rows, ids))

        kind = f"{stored.bits} bits" if isinstance(stored, Codes) else stored.dtype
        return call if self.trust.holds("experts", (kind, *stack.shape[1:]), probe) else plain

    def _of_experts(self, stored: Codes | Values) -> Callable[[mx.array, experts.ExpertOrder], mx.array]:
        if isinstance(stored, Codes):
            words, scales, biases = self._codes(stored)
            return lambda rows, order: experts.expert_affine(
                rows, words, scales, biases, stored.bits, stored.group, order, self._dtype
            )
        weights = self._dense(stored)
        return lambda rows, order: experts.expert_dense(rows, weights, order, self._dtype)

    # -- rows ------------------------------------------------------------------------------------------------------

    def norm(self, rows: mx.array, weight: mx.array | None, eps: float) -> mx.array:
        """RMS norm over the last axis."""
        plain, groups = super().norm, rows.size // rows.shape[0] // rows.shape[-1]
        sample = samples(3, *rows.shape[1:], dtype=rows.dtype)

        def call(x: mx.array) -> mx.array:
            return norms.rms_norm(x, weight, eps, groups)

        shape = (*rows.shape[1:], str(rows.dtype), weight is None)
        holds = self.trust.holds("norms", shape, lambda: exact_rows(call, sample, lambda x: plain(x, weight, eps)))
        return call(rows) if holds else plain(rows, weight, eps)

    def gated_silu(self, gate: mx.array, up: mx.array) -> mx.array:
        """gate * sigmoid(gate) * up."""
        plain = super().gated_silu
        sample = samples(3, 64, dtype=gate.dtype)
        shape = str(gate.dtype)
        same = gate.shape == up.shape and gate.dtype == up.dtype
        holds = same and self.trust.holds(
            "gates", shape, lambda: exact_rows(lambda x: gates.gated(x, x), sample, lambda x: plain(x, x))
        )
        return gates.gated(gate, up) if holds else plain(gate, up)

    # -- state -----------------------------------------------------------------------------------------------------

    def key_values(self, op: Attention, capacity: int) -> LibraryKeyValues | MetalKeyValues:  # type: ignore[override]
        """Empty state of an attention layer."""
        shape = (op.heads, op.kv_heads, op.head_dim, op.window)
        if op.head_dim % 32 == 0 and self.trust.holds("attention", shape, lambda: exact_reads(op, self._dtype)):
            return MetalKeyValues(op, capacity, self._dtype)
        return super().key_values(op, capacity)

    def scan(
        self, step: Step, inputs: Sequence[mx.array], start: mx.array, parents: Sequence[int]
    ) -> tuple[mx.array, mx.array]:
        """The recurrences that have a kernel in one launch, others row by row."""
        kernel = _SCANS.get(step)
        if kernel is None or not kernel.takes(start):
            return super().scan(step, inputs, start, parents)
        shape = (kernel.name, *start.shape)
        if not self.trust.holds("recurrences", shape, lambda: self._scan_holds(kernel, step, inputs, start)):
            return super().scan(step, inputs, start, parents)
        return kernel(inputs, start, parents)

    def _scan_holds(self, kernel: _Scan, step: Step, inputs: Sequence[mx.array], start: mx.array) -> bool:
        rows = [mx.abs(samples(3, *part.shape[1:], dtype=mx.float32, seed=at)) * 0.3 for at, part in enumerate(inputs)]
        state = samples(*start.shape, dtype=mx.float32)
        made, behind = kernel(rows, state, range(-1, 2))
        wanted, _ = super().scan(step, rows, state, range(-1, 2))
        first, then = kernel([part[:1] for part in rows], state, [-1])
        second, _ = kernel([part[1:2] for part in rows], then, [-1])
        tree, _ = kernel(rows, state, [-1, 0, 0])
        alone = same_bits(made[:2], mx.concatenate([first, second], axis=0)) and same_bits(tree[:2], made[:2])
        third, _ = kernel([part[2:] for part in rows], then, [-1])
        return alone and same_bits(tree[2:], third) and close(made, wanted) and bool(mx.all(mx.isfinite(behind)))


class _Scan:
    """A recurrence as one launch; see `RowOps.scan`."""

    name = ""

    def takes(self, start: mx.array) -> bool:
        """Whether the kernel takes a state of this shape."""
        raise NotImplementedError

    def __call__(
        self, inputs: Sequence[mx.array], start: mx.array, parents: Sequence[int]
    ) -> tuple[mx.array, mx.array]:
        """Outputs of all rows, and the state behind the last."""
        raise NotImplementedError


class _Delta(_Scan):
    name = "delta"

    def takes(self, start: mx.array) -> bool:
        return start.shape[1] % 4 == 0 and start.shape[2] % 8 == 0

    def __call__(
        self, inputs: Sequence[mx.array], start: mx.array, parents: Sequence[int]
    ) -> tuple[mx.array, mx.array]:
        queries, keys, values, decay, strength = inputs
        chain = _is_chain(parents)
        made, states = recurrence.delta_steps(
            queries, keys, values, decay, strength, start, window(parents), not chain, mx.float32
        )
        return made, states if chain else states[-1]


class _Mamba(_Scan):
    name = "mamba"

    def takes(self, start: mx.array) -> bool:
        return start.shape[2] % 8 == 0 and start.shape[3] % 4 == 0

    def __call__(
        self, inputs: Sequence[mx.array], start: mx.array, parents: Sequence[int]
    ) -> tuple[mx.array, mx.array]:
        written, decay, into, out_of = inputs
        groups, each, dim, size = start.shape
        count, heads = written.shape[0], groups * each
        chain = _is_chain(parents)
        made, states = recurrence.mamba_scan(
            written.reshape(count, heads, dim),
            into,
            out_of,
            mx.ones((count, heads), mx.float32),
            decay.reshape(count, heads),
            mx.zeros((max(heads, 8),), mx.float32),
            start.reshape(heads, dim, size),
            window(parents),
            not chain,
            mx.float32,
        )
        last = states if chain else states[-1]
        return made.reshape(written.shape), last.reshape(start.shape)


_SCANS: dict[Any, _Scan] = {delta_step: _Delta(), mamba2_step: _Mamba()}


def _is_chain(parents: Sequence[int]) -> bool:
    return all(parent == row - 1 for row, parent in enumerate(parents))


def _biased(product: Product[mx.array], matrix: Matrix, dtype: mx.Dtype) -> Product[mx.array]:
    if matrix.bias is None:
        return product
    bias = mx.array(np.asarray(matrix.bias)).astype(dtype)
    return lambda rows: product(rows) + bias
