"""Matrices on the device that multiply rows: those of a round by the row kernel, those of a prompt in tiles.

A decoded row's bits follow from the row and the matrix's shape alone. So do a prompt row's, whose arithmetic is
another: its matrix is unpacked to the activations' dtype first. Slots that share their input and are stored alike lie
side by side and are one matrix everywhere; a gate and what it opens lie in turn, so that one launch does both.

Loading holds, beside what stays: on the host the slots of one product, or one entry of a stack of experts; on the
device twice their stored bytes, and about 200 MB while codes are put in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.experts import ExpertStack
from tensorfold.adapters.cuda.gated import Gated
from tensorfold.adapters.cuda.linear import Linear, Lookup
from tensorfold.adapters.cuda.packed import PackedMatrix, as_numbers, kind, packed, upload
from tensorfold.adapters.cuda.packing import TILE, tiles_of
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.stored_weights import Codes, Matrix, Stored, as_float32
from tensorfold.domain.families.ops import MixtureOfExperts
from tensorfold.kernels.cuda import affine_rows, row_tilings
from tensorfold.kernels.cuda.driver import Device
from tensorfold.kernels.triton.dequantize import dequantize
from tensorfold.kernels.triton.prompt_matmul import Tiles, expert_tiles_for, multiply, tiles_for

Tensor = Any


class RowLaunches(Protocol):
    """What makes the launches of decoded rows: `kernels/cuda/affine_rows.RowKernels`."""

    device: Device

    def expect_rows(self, matrix: row_tilings.Matrix, rows: int, wide: bool = False) -> None:
        """Say early that `rows` will be asked for the same."""
        ...

    def expect_experts(self, matrix: row_tilings.Matrix, rows: int, pairs: int, wide: bool = False) -> None:
        """Say early that `experts` will be asked for the same."""
        ...

    def rows(self, matrix: row_tilings.Matrix, rows: int, wide: bool = False) -> affine_rows.Launch:
        """Rows times one matrix."""
        ...

    def experts(
        self, matrix: row_tilings.Matrix, rows: int, pairs: int, wide: bool = False
    ) -> affine_rows.ExpertLaunch:
        """Rows times matrices of a stack."""
        ...


class Products:
    """Makes products of the slots that `weights` reads; what is packed for a product is held once.

    `rows` launches on `device`. `stack_bytes` is the most that a stack of experts is unpacked into at a time.
    """

    def __init__(
        self,
        weights: Any,
        rows: RowLaunches,
        device: Any,
        on_note: Callable[[str], None] = lambda line: None,
        stack_bytes: int = 512 << 20,
    ) -> None:
        self.weights, self.rows, self.device, self.stack_bytes = weights, rows, device, stack_bytes
        self.early = rows.device.capability >= (9, 0)
        self._note = on_note
        self._noted = False
        self._held: dict[tuple[tuple[str, ...], bool], PackedMatrix] = {}
        self._counts: tuple[int, ...] = ()
        self._most = 0
        self._room: Tensor = None
        self._used = torch.ones(1, dtype=torch.int32, device=device)

    def launched_with(self, counts: Iterable[int]) -> None:
        """Products made from now on are launched with these row counts, so that what they need is compiled at once."""
        self._counts = tuple(counts)

    def beside(self, weights: Any) -> Products:
        """Products of another reader's slots on the same device, from the same launches."""
        made = Products(weights, self.rows, self.device, self._note, self.stack_bytes)
        made.launched_with(self._counts)
        return made

    def expect(self, matrix: row_tilings.Matrix, wide: bool) -> None:
        """Have the launches of a matrix compiled; `wide`: float32 results. Raises RefusedError where there is none."""
        with _refused():
            for rows in self._sizes(affine_rows.MOST_ROWS):
                self.rows.expect_rows(matrix, rows, wide)

    def expect_experts(self, up: row_tilings.Matrix, down: row_tilings.Matrix, slots: int) -> int:
        """The same of experts, of which each row passes `slots`; how many rows at most are launched together.

        Fewer than there are pairs for where a block of the card has no room for x of so many.
        """
        most = affine_rows.MOST_PAIRS // slots
        with _refused():
            while True:
                try:
                    for rows in self._sizes(most):
                        self.rows.expect_experts(up, rows, rows * slots)
                        self.rows.expect_experts(down, rows * slots, rows * slots, wide=True)
                    return most
                except ValueError:
                    if most == 1:
                        raise
                    most //= 2

    def _sizes(self, most: int) -> list[int]:
        """The sizes of launches of which each takes `most` rows."""
        whole = {most for count in self._counts if count >= most}
        return sorted(whole | {count % most for count in self._counts if count % most})

    def linear(self, *paths: str, wide: bool = False, prompts: bool = True) -> Linear:
        """The matrices at `paths`, which share their input, outputs side by side; float32 results if `wide`.

        Without `prompts` no room is counted for unpacking it. Raises RefusedError for storage that no kernel reads.
        """
        return self._linear(self._parts(paths), wide, prompts)

    def gated(self, gate: str, up: str) -> Gated:
        """silu of the product with `gate` times that with `up`: they share their input, and have equally many outputs.

        A round's rows pass one launch where the two are stored alike, have no biases and fill whole tiles together;
        else a product with both, then the gate. Raises RefusedError for storage that no kernel reads.
        """
        parts = self._parts((gate, up), gated=True)
        return Gated(self._linear(parts, False, True), parts[0].matrix.gated)

    def embedding(self, path: str) -> Lookup:
        """The rows of a table, read from the same blocks that a tied head multiplies with."""
        (table,) = self._parts((path,))
        return Lookup(table)

    def experts(self, plan: MixtureOfExperts, path: str) -> ExpertStack:
        """The experts below `path`, with the shared one among them where it is so many experts wide."""
        return ExpertStack(self, plan, path)

    def plain(self, path: str) -> Tensor:
        """A slot's values for kernels that read them whole: bf16 where they are stored so, else float32."""
        stored = self.weights.matrix(path).stored
        if isinstance(stored, Codes) or stored.dtype != "BF16":
            return upload(as_float32(stored), self.device)
        return as_numbers(stored, self.device)

    def tiles(self, outputs: int, inputs: int) -> Tiles:
        """How a prompt's product with so many outputs and inputs is cut."""
        card = self.rows.device
        return tiles_for(outputs, inputs, card.capability, card.shared_bytes)

    def expert_tiles(self) -> Tiles:
        """How a prompt's products with experts are cut: few rows choose the same expert."""
        card = self.rows.device
        return expert_tiles_for(card.capability, card.shared_bytes)

    def stream(self) -> int:
        """The address of the stream that launches go to."""
        on_card = torch.device(self.device).type == "cuda"
        return int(torch.cuda.current_stream(self.device).cuda_stream) if on_card else 0

    def count_room(self, values: int) -> None:
        """Let prompts have room for so many values."""
        self._most = max(self._most, values)

    @property
    def room(self) -> int:
        """Values of the room that prompts unpack matrices into, two bytes each; made when the first prompt comes."""
        return self._most

    def unpacked(self, values: int, dtype: Any) -> Tensor:
        """Room for `values` of a matrix that is multiplied with next; what was in it is lost."""
        if self._room is None or self._room.numel() < values or self._room.dtype != dtype:
            self._room = None
            self._room = torch.empty(max(values, self._most), dtype=dtype, device=self.device)
        return self._room[:values]

    def multiply_prompt(self, part: PackedMatrix, x: Tensor, out: Tensor) -> None:
        """`out` [T, N] of a prompt's rows [T, K]: of a gated matrix the gate's outputs, then those of what it opens."""
        matrix = part.matrix
        rows = tiles_of(matrix.outputs) * TILE
        w = self.unpacked(rows * matrix.inputs, x.dtype).view(rows, matrix.inputs)
        dequantize(part.blocks, matrix.bits, w, self._used, matrix.gated)
        multiply(x, w, out, self.tiles(matrix.outputs, matrix.inputs), self.rows.device.multiprocessors)

    def multiply_plain(self, x: Tensor, w: Tensor) -> Tensor:
        """Float32 [T, N] of a prompt's rows [T, K] times `w` [N, K] of their dtype."""
        out = torch.empty((len(x), len(w)), dtype=torch.float32, device=x.device)
        multiply(x.contiguous(), w, out, self.tiles(*w.shape), self.rows.device.multiprocessors)
        return out

    def note_rounding(self, path: str, stored: Stored) -> None:
        """Say once that weights lose digits here."""
        if stored.dtype != "BF16" and not self._noted:
            self._noted = True
            what = "scales and biases" if isinstance(stored, Codes) else "weights"
            self._note(
                f"{what} stored as {stored.dtype} ({path} first) are rounded to bf16, which the kernels multiply"
            )

    def _linear(self, parts: Sequence[PackedMatrix], wide: bool, prompts: bool) -> Linear:
        if prompts:
            self.count_room(max(tiles_of(part.matrix.outputs) * TILE * part.matrix.inputs for part in parts))
        return Linear(self, parts, wide)

    def _parts(self, paths: tuple[str, ...], gated: bool = False) -> list[PackedMatrix]:
        """Packed matrices of neighbouring slots stored alike; if `gated`, one gated matrix where there can be one."""
        if (paths, gated) in self._held:
            return [self._held[paths, gated]]
        matrices = [self.weights.matrix(path) for path in paths]
        if gated and _can_be_gated(*matrices):
            return [self._packed(paths, matrices, gated=True)]
        starts = [at for at in range(len(paths)) if not at or not _alike(matrices[at - 1], matrices[at])]
        return [
            self._packed(paths[start:stop], matrices[start:stop])
            for start, stop in zip(starts, [*starts[1:], len(paths)], strict=True)
        ]

    def _packed(self, paths: tuple[str, ...], matrices: Sequence[Matrix], gated: bool = False) -> PackedMatrix:
        if (paths, gated) not in self._held:
            for path, matrix in zip(paths, matrices, strict=True):
                self.note_rounding(path, matrix.stored)
            made = packed(paths[0], [m.stored for m in matrices], [m.shape for m in matrices], self.device, gated)
            if any(matrix.bias is not None for matrix in matrices):
                biases = [np.zeros(m.shape[0], np.float32) if m.bias is None else m.bias for m in matrices]
                made.bias = upload(np.concatenate(biases), self.device)
            self._held[paths, gated] = made
        return self._held[paths, gated]


@contextmanager
def _refused() -> Iterator[None]:
    """A refusal for a matrix that no launch takes."""
    try:
        yield
    except ValueError as fault:
        raise RefusedError(f"The CUDA backend cannot multiply rows with a matrix of this model: {fault}.") from None


def _alike(one: Matrix, other: Matrix) -> bool:
    return kind(one.stored) == kind(other.stored)


def _can_be_gated(gate: Matrix, up: Matrix) -> bool:
    """Whether one matrix can hold both in turn: its launches add no biases, and have whole tiles of outputs alone."""
    unbiased = gate.bias is None and up.bias is None
    return unbiased and _alike(gate, up) and (gate.shape[0] + up.shape[0]) % TILE == 0
