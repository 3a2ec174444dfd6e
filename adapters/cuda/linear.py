"""Rows through packed matrices: products of a round's and of a prompt's rows, and rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.packed import PackedMatrix
from tensorfold.kernels.cuda.affine_rows import MOST_ROWS
from tensorfold.kernels.triton.dequantize import look_up

if TYPE_CHECKING:
    from tensorfold.adapters.cuda.products import Products

Tensor = Any


class Linear:
    """Rows [R, K] to [R, sum of outputs]: products with the matrices in order, biases added in float32.

    `outputs` are those of each slot. Results have the rows' dtype, or are float32 if `wide`. What a gated matrix makes
    is for `gated.Gated` to read: a round's rows get its results, a prompt's rows its outputs, those of the gate first.
    """

    def __init__(self, products: Products, parts: Sequence[PackedMatrix], wide: bool) -> None:
        self._products, self._parts, self.wide = products, parts, wide
        self.outputs = tuple(count for part in parts for count in part.outputs)
        for part in parts:
            products.expect(part.matrix, self._is_wide(part))

    def among(self, spans: Sequence[tuple[int, int]]) -> Linear:
        """The product with the outputs of half-open `spans` alone, side by side, over the same blocks.

        Only of one matrix; a span begins a tile of 16 outputs, else ValueError. A span is a matrix of its own: its
        bits may be others than those of the whole.
        """
        if len(self._parts) != 1:
            raise ValueError(f"spans of {len(self._parts)} matrices side by side")
        return Linear(self._products, [self._parts[0].among(start, stop) for start, stop in spans], self.wide)

    def decode(self, x: Tensor) -> Tensor:
        """Rows of a round, [R, K] to [R, N], of a gated matrix [R, N / 2]: a row's bits are those it has alone."""
        x = x.contiguous()
        return self._joined([self._finished(part, self._decoded(part, x), x) for part in self._parts])

    def prompt(self, x: Tensor) -> Tensor:
        """Rows of a prompt, [T, K] to [T, N]: a row's bits hang on neither T nor its place."""
        x, made = x.contiguous(), []
        for part in self._parts:
            out = self._empty(part, x, part.matrix.outputs)
            self._products.multiply_prompt(part, x, out)
            made.append(self._finished(part, out, x))
        return self._joined(made)

    def _decoded(self, part: PackedMatrix, x: Tensor) -> Tensor:
        out, products = self._empty(part, x, part.matrix.results), self._products
        for start in range(0, len(x), MOST_ROWS):
            rows = min(MOST_ROWS, len(x) - start)
            launch = part.launch(products.rows, rows, out.dtype == torch.float32)
            addresses = part.blocks.data_ptr(), x[start:].data_ptr(), out[start:].data_ptr()
            launch(*addresses, products.stream(), products.early)
        return out

    def _empty(self, part: PackedMatrix, x: Tensor, columns: int) -> Tensor:
        dtype = torch.float32 if self._is_wide(part) else x.dtype
        return torch.empty((len(x), columns), dtype=dtype, device=x.device)

    def _is_wide(self, part: PackedMatrix) -> bool:
        return self.wide or part.bias is not None

    def _finished(self, part: PackedMatrix, made: Tensor, x: Tensor) -> Tensor:
        if part.bias is None:
            return made
        return made.add_(part.bias) if self.wide else made.add_(part.bias).to(x.dtype)

    def _joined(self, made: list[Tensor]) -> Tensor:
        return made[0] if len(made) == 1 else torch.cat(made, 1)


class Lookup:
    """Ids int32 [R] to rows [R, K] of a table."""

    def __init__(self, table: PackedMatrix) -> None:
        self._table = table

    def __call__(self, ids: Tensor, dtype: Any) -> Tensor:
        """Rows of the table in `dtype`."""
        out = torch.empty((len(ids), self._table.matrix.inputs), dtype=dtype, device=ids.device)
        look_up(self._table.blocks, self._table.matrix.bits, ids, out)
        return out
