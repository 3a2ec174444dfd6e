"""The tensor types of GGUF files: which are read, and the names of those that are refused.

A block type packs 32 values of a row: scales first, then codes. Source: the GGUF format's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorType:
    """One readable type: `block_bytes` hold `block` consecutive values of a row."""

    name: str
    block: int
    block_bytes: int

    @property
    def is_quantized(self) -> bool:
        """Whether values are codes with a scale."""
        return self.block > 1


F32 = TensorType("F32", 1, 4)
F16 = TensorType("F16", 1, 2)
BF16 = TensorType("BF16", 1, 2)
Q4_0 = TensorType("Q4_0", 32, 18)
Q4_1 = TensorType("Q4_1", 32, 20)
Q8_0 = TensorType("Q8_0", 32, 34)

READ = {0: F32, 1: F16, 2: Q4_0, 3: Q4_1, 8: Q8_0, 30: BF16}
REFUSED = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: `shape` has outputs first (the file lists them last), `begin` is a byte offset in the file."""

    name: str
    type: TensorType
    shape: tuple[int, ...]
    begin: int

    @property
    def width(self) -> int:
        """Values in a row."""
        return self.shape[-1]

    @property
    def rows(self) -> int:
        """Rows over all leading axes."""
        rows = 1
        for size in self.shape[:-1]:
            rows *= size
        return rows

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.width // self.type.block * self.type.block_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return self.rows * self.row_bytes
