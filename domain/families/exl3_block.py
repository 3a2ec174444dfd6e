"""What a config states of EXL3 weights: facts for `info`; the format itself is not served by this version.

Source: the format's public documentation. `bits` is the average aimed at, never one tensor's width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tensorfold.domain.families.storage import quantization_block

METHOD = "exl3"
CODEBOOKS = ("3inst", "mcg", "mul1")
_MOST_BITS = 16.0


@dataclass(frozen=True, slots=True)
class Exl3:
    """Average bits of a weight, bits of the head and of the draft head (0: not stated), codebook (empty: not so)."""

    bits: float
    head_bits: float
    mtp_bits: float
    codebook: str


def parse_exl3(config: Mapping[str, Any]) -> Exl3 | None:
    """The EXL3 block of a config, or None where there is none. Raises ConfigError for values that cannot be."""
    block = quantization_block(config)
    if block is None or block.values.get("quant_method") != METHOD:
        return None
    return Exl3(
        bits=block.number("bits", 1.0, _MOST_BITS),
        head_bits=block.number("head_bits", 1.0, _MOST_BITS, 0.0),
        mtp_bits=block.number("mtp_bits", 1.0, _MOST_BITS, 0.0),
        codebook=block.word("codebook", CODEBOOKS, ""),
    )
