"""Plans the tensors of a converted llama: dense bfloat16, or the exact affine repack.

Works in blocks of rows, so memory does not grow with the model. A value that the target form would change (in the
repack) or cannot hold (in either form) is refused with the tensor's name; nothing is rounded silently but dense bf16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.packages.gguf_blocks import (
    AFFINE_BITS,
    GROUP,
    NotExactError,
    affine_scales,
    affine_words,
    bfloat16_bits,
    float32_rows,
    uninterleave_rows,
)
from tensorfold.adapters.packages.gguf_reader import GgufFile
from tensorfold.adapters.packages.gguf_types import BF16, F16, GgufTensor
from tensorfold.adapters.packages.llama_tensors import LlamaLayout, Target
from tensorfold.adapters.packages.safetensors_writer import PlannedTensor
from tensorfold.application.ports.checkpoints import RefusedError

_BLOCK_VALUES = 1 << 20
Rows = NDArray[np.uint8]


class Form(StrEnum):
    """How weights are written."""

    DENSE = "bf16"
    REPACKED = "4bit"


def plan_weights(file: GgufFile, layout: LlamaLayout, form: Form) -> list[PlannedTensor]:
    """Every tensor to write. Reading happens when a tensor's pieces are asked for; they raise RefusedError."""
    planned: list[PlannedTensor] = []
    for source, target in layout.targets.items():
        tensor = _Source(file, file.tensors[source], target)
        if form is Form.DENSE:
            planned.append(tensor.made("BF16", lambda kind, rows: bfloat16_bits(float32_rows(kind, rows))))
        elif file.tensors[source].type.is_quantized:
            planned.extend(tensor.repacked())
        else:
            planned.append(tensor.kept())
    return planned


def affine_widths(file: GgufFile, layout: LlamaLayout) -> dict[str, int]:
    """Bits of every module that the repack writes as affine codes in groups of 32, by its name."""
    return {
        target.name.removesuffix(".weight"): AFFINE_BITS[file.tensors[source].type]
        for source, target in layout.targets.items()
        if file.tensors[source].type.is_quantized
    }


class _Source:
    """One tensor on its way from the GGUF file to its target."""

    def __init__(self, file: GgufFile, tensor: GgufTensor, target: Target) -> None:
        self._file, self._tensor, self._target = file, tensor, target

    def made(self, dtype: str, make: Callable[..., NDArray[Any]]) -> PlannedTensor:
        """The whole tensor, each block of rows through `make(type, rows)`."""
        return PlannedTensor(self._target.name, dtype, self._target.shape, lambda: self._blocks(make))

    def repacked(self) -> list[PlannedTensor]:
        """Codes, scales and biases."""
        name = self._target.name.removesuffix(".weight")
        rows, width = self._target.shape
        words, groups = width * AFFINE_BITS[self._tensor.type] // 32, width // GROUP
        return [
            PlannedTensor(f"{name}.weight", "U32", (rows, words), lambda: self._blocks(affine_words)),
            PlannedTensor(f"{name}.scales", "F16", (rows, groups), lambda: self._blocks(_scales)),
            PlannedTensor(f"{name}.biases", "F16", (rows, groups), lambda: self._blocks(_biases)),
        ]

    def kept(self) -> PlannedTensor:
        """A float tensor as it is; F32 narrows to F16, the scales' type, when no value changes."""
        if self._tensor.type == BF16:
            return self.made("BF16", lambda kind, rows: _checked(kind, rows).view("<u2"))
        if self._tensor.type == F16 or all(self._parts(_fits_float16)):
            return self.made("F16", lambda kind, rows: float32_rows(kind, rows).astype(np.float16))
        return self.made("F32", float32_rows)

    def _blocks(self, make: Callable[..., NDArray[Any]]) -> Iterator[NDArray[Any]]:
        """What `make` gives for each block of rows, in the target's row order."""
        head = self._target.interleaved
        for made in self._parts(make):
            rows = made.reshape(-1) if len(self._target.shape) == 1 else made
            yield uninterleave_rows(rows, head) if head else rows

    def _parts(self, make: Callable[..., Any]) -> Iterator[Any]:
        """What `make` gives for each block of rows. Blocks are whole heads, so that none needs its neighbour's rows."""
        head = self._target.interleaved or 1
        step = max(1, _BLOCK_VALUES // (self._tensor.width * head)) * head
        for start in range(0, self._tensor.rows, step):
            yield self._make(make, start, min(start + step, self._tensor.rows))

    def _make(self, make: Callable[..., Any], start: int, stop: int) -> Any:
        try:
            return make(self._tensor.type, self._file.read_rows(self._tensor, start, stop))
        except NotExactError as error:
            raise RefusedError(f"{self._file.label}: tensor {self._tensor.name} is not converted: {error}.") from None


def _scales(kind: Any, rows: Rows) -> NDArray[np.float16]:
    return affine_scales(kind, rows)[0]


def _biases(kind: Any, rows: Rows) -> NDArray[np.float16]:
    return affine_scales(kind, rows)[1]


def _checked(kind: Any, rows: Rows) -> Rows:
    float32_rows(kind, rows)
    return rows


def _fits_float16(kind: Any, rows: Rows) -> bool:
    values = float32_rows(kind, rows)
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float16).astype(np.float32) == values).all())
