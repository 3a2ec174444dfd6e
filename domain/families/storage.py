"""How tensors are stored in a checkpoint: dtypes, affine groups, per-tensor overrides. Facts and arithmetic only.

Source: the safetensors format's documentation and MLX's affine quantization (docs/recipes, "Formats").
"""

from __future__ import annotations

from dataclasses import dataclass

DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
AFFINE_BITS = (2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """One tensor as its file's header states it; `begin` and `end` are byte offsets in the file `file`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's data."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Dense:
    """Plain values of one float dtype (`BF16`, `F16` or `F32`)."""

    dtype: str


@dataclass(frozen=True, slots=True)
class Affine:
    """MLX affine codes: value = scale * code + bias over groups of `group` inputs; `dtype` is that of scale and bias."""

    bits: int
    group: int
    dtype: str


Storage = Dense | Affine
