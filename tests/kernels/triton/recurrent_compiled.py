"""`python -m tests.kernels.triton.recurrent_compiled 90` compiles what convolutions and recurrences need for that card.

Each with the options that it is launched with, at true widths, and with no card here.
"""

from __future__ import annotations

import sys
from typing import Any

import triton  # type: ignore[import-not-found, unused-ignore]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton import conv, delta_scan, gates, mamba_scan, recurrent
from tests.kernels.triton.starting import with_start

HALF, FULL, WORD, LONG, REAL = "*bf16", "*fp32", "*i32", "i32", "fp32"
Kinds = list[str | int | bool]
# The kernel, each argument's type in order (a number is a compile-time constant), and its warps.
KERNELS: dict[str, tuple[Any, Kinds, int]] = {
    "delta_inputs": (
        conv._delta_inputs,
        [
            *[HALF, LONG] * 3,
            WORD,
            WORD,
            HALF,
            HALF,
            FULL,
            HALF,
            *[FULL] * 4,
            *[LONG] * 3,
            REAL,
            False,
            128,
            384,
            512,
            3,
            4,
        ],
        1,
    ),
    "mamba2_inputs": (
        conv._mamba2_inputs,
        [*[HALF, LONG] * 2, WORD, WORD, HALF, HALF, *[FULL] * 6, *[LONG] * 3, REAL, REAL, True, 512, 64],
        4,
    ),
    "delta_span": (
        conv._delta_span,
        [*[HALF, LONG] * 3, WORD, HALF, HALF, *[FULL] * 5, *[LONG] * 4, REAL, False, 128, 128, 3, 16],
        4,
    ),
    "mamba2_span": (
        conv._mamba2_span,
        [*[HALF, LONG] * 2, WORD, HALF, HALF, *[FULL] * 4, *[LONG] * 3, REAL, REAL, True, 256, 64, 16],
        4,
    ),
    "gated_norm": (gates._gated_norm, [HALF, HALF, LONG, FULL, HALF, LONG, LONG, REAL, False, True, 128], 1),
    "gated_norm_span": (
        gates._gated_norm_span,
        [HALF, HALF, LONG, FULL, HALF, *[LONG] * 3, REAL, False, True, 16, 128],
        4,
    ),
    "mamba2": (
        recurrent._mamba2,
        [FULL, HALF, FULL, FULL, *[WORD] * 4, LONG, FULL, *[LONG] * 5, 64, 128, 4],
        1,
    ),
    "delta_parts": (
        delta_scan._parts,
        [HALF, FULL, HALF, HALF, FULL, *[LONG] * 4, 128, 64, "tf32"],
        4,
    ),
    "delta_walk": (
        delta_scan._walk,
        [FULL, *[HALF] * 3, FULL, HALF, *[LONG] * 5, 128, 128, 32, 64, 2],
        4,
    ),
    "mamba2_parts": (mamba_scan._parts, [HALF, FULL, FULL, HALF, FULL, *[LONG] * 5, 128, 64], 4),
    "mamba2_walk": (
        mamba_scan._walk,
        [FULL, HALF, HALF, *[FULL] * 3, *[LONG] * 5, 64, 128, 32, 64, 2],
        4,
    ),
}


def compiled(name: str, architecture: int) -> Any:
    """The kernel's machine code and what is known of it."""
    kernel, kinds, warps = KERNELS[name]
    names, kinds = kernel.arg_names, with_start(kernel, kinds, architecture)
    assert len(names) == len(kinds), name
    typed = {HALF, FULL, WORD, LONG, REAL}
    signature = {n: k if k in typed else "constexpr" for n, k in zip(names, kinds, strict=True)}
    constants = {(i,): kind for i, kind in enumerate(kinds) if kind not in typed}
    # Pointers come from an allocator that aligns them, and widths of rows are multiples of 16.
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(kinds) if kind in typed - {REAL}}
    source = triton.compiler.ASTSource(kernel, signature, constants, aligned)
    options = {"num_warps": warps, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)


if __name__ == "__main__":
    for name in KERNELS:
        assert compiled(name, int(sys.argv[1])).asm["cubin"][:4] == b"\x7fELF"
        print(name, flush=True)
