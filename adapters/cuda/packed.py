"""Matrices of the checkpoint packed on the device, and what their storage must be for that.

Reads stored values, never a file. Launches of decoded rows are kept by row count, so that how they are cut and tiled is
settled once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.packing import TILE, new_blocks, pack_bf16, pack_codes, packed_width, tiles_of
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.stored_weights import Codes, Stored, Values
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.storage import Affine
from tensorfold.kernels.cuda.affine_rows import Launch
from tensorfold.kernels.cuda.row_tilings import Matrix

Tensor = Any
GROUPS = (64, 128)
TURN = 4
"""Outputs of a gate, then of what it opens, that lie together in a gated matrix."""
_WHOLE = 64
_NUMBERS = Values(np.empty(0), "BF16")


@dataclass(slots=True, eq=False)
class PackedMatrix:
    """`blocks` of one matrix, the `outputs` of the slots it is made of, and their float32 biases [N] if any has one.

    A gated matrix has no biases.
    """

    matrix: Matrix
    blocks: Tensor
    outputs: tuple[int, ...]
    bias: Tensor | None = None
    _launches: dict[tuple[int, bool], Launch] = field(default_factory=dict)

    def among(self, start: int, stop: int) -> PackedMatrix:
        """Outputs start to stop alone, over the same blocks.

        Raises ValueError unless `start` begins a tile of 16, and of a gated matrix, whose outputs lie in turn.
        """
        if self.matrix.gated:
            raise ValueError(f"outputs {start} to {stop} of a gate and what it opens are no matrix")
        if start % TILE or not 0 <= start < stop <= self.matrix.outputs:
            raise ValueError(f"outputs {start} to {stop} are not whole tiles of {TILE} of {self.matrix.outputs}")
        tiles = slice(start // TILE, start // TILE + tiles_of(stop - start))
        matrix = Matrix(stop - start, self.matrix.inputs, self.matrix.bits)
        bias = None if self.bias is None else self.bias[start:stop]
        return PackedMatrix(matrix, self.blocks[tiles], (stop - start,), bias)

    def launch(self, rows: Any, count: int, wide: bool) -> Launch:
        """The launch of `count` rows, as `rows` (see `products.RowLaunches`) makes it."""
        if (count, wide) not in self._launches:
            self._launches[count, wide] = rows.rows(self.matrix, count, wide)
        return self._launches[count, wide]


def kind(stored: Stored) -> tuple[int, int]:
    """Bits and group of codes, 16 and no group of numbers: what must be equal of slots that lie side by side."""
    return (stored.bits, stored.group) if isinstance(stored, Codes) else (16, 0)


def width_of(stored: Stored) -> int:
    """Bits of a packed code."""
    return packed_width(stored.bits) if isinstance(stored, Codes) else 16


def check_kind(path: str, stored: Stored | Affine, inputs: int) -> None:
    """Raise RefusedError where no kernel reads a matrix that is stored so."""
    if isinstance(stored, Codes | Affine) and stored.group not in GROUPS:
        raise RefusedError(
            f"{path} is stored in groups of {stored.group} codes; the CUDA backend reads groups of 64 and 128: convert "
            "the checkpoint with a group size of 64."
        )
    if inputs % _WHOLE:
        raise RefusedError(
            f"{path} has {inputs} inputs; the CUDA backend multiplies rows of a multiple of {_WHOLE}: run it with "
            "--backend mlx."
        )


def refuse_unread(bound: Mapping[str, Bound]) -> None:
    """Raise RefusedError, from headers alone, for matrices that no kernel reads as they are stored."""
    for path, found in bound.items():
        if found.slot.weight.rule == "matrix":
            stored = found.storage if isinstance(found.storage, Affine) else _NUMBERS
            check_kind(path, stored, found.slot.shape[-1])


def pack_side_by_side(stored: Sequence[Stored], blocks: Tensor, gated: bool = False) -> None:
    """Fill `blocks` of one matrix from slots stored alike, one below another.

    `gated`: they are a gate and what it opens, of which `TURN` outputs each lie in turn.
    """
    device = blocks.device
    first = stored[0]

    def joined(parts: Sequence[NDArray[Any]], dtype: Any) -> Tensor:
        return _joined([upload(part, device).to(dtype) for part in parts], gated)

    if isinstance(first, Codes):
        codes = [one for one in stored if isinstance(one, Codes)]
        words = joined([one.words for one in codes], torch.int32)
        scales = joined([one.scales for one in codes], torch.bfloat16)
        biases = joined([one.biases for one in codes], torch.bfloat16)
        pack_codes(words, scales, biases, first.bits, blocks)
    else:
        values = [one for one in stored if isinstance(one, Values)]
        pack_bf16(_joined([as_numbers(one, device).to(torch.bfloat16) for one in values], gated), blocks)


def packed(
    path: str, stored: Sequence[Stored], shapes: Sequence[tuple[int, int]], device: Any, gated: bool = False
) -> PackedMatrix:
    """One matrix of slots stored alike; `path` names them in a refusal. `gated`: see `pack_side_by_side`."""
    inputs, outputs = shapes[0][1], tuple(shape[0] for shape in shapes)
    check_kind(path, stored[0], inputs)
    matrix = Matrix(sum(outputs), inputs, width_of(stored[0]), gated)
    blocks = new_blocks(matrix.outputs, inputs, matrix.bits, device)
    pack_side_by_side(stored, blocks, gated)
    return PackedMatrix(matrix, blocks, outputs)


def as_numbers(values: Values, device: Any) -> Tensor:
    """Dense values on the device, in the dtype they are stored in."""
    if values.dtype == "BF16":
        return upload(values.raw, device).view(torch.bfloat16)
    return upload(values.raw, device)


def upload(values: NDArray[Any], device: Any) -> Tensor:
    """An array on the device; unsigned integers as signed ones of the same bits."""
    signed = {np.dtype(np.uint32): np.int32, np.dtype(np.uint16): np.int16}.get(values.dtype)
    whole = np.ascontiguousarray(values)
    return torch.from_numpy(whole if signed is None else whole.view(signed)).to(device)


def _joined(parts: Sequence[Tensor], gated: bool) -> Tensor:
    """Rows of all parts, each copied once, to where they belong."""
    if not gated:
        return torch.cat(parts)
    return torch.stack([part.view(-1, TURN, part.shape[1]) for part in parts], 1).flatten(0, 2)
