"""`python -m tests.kernels.triton.prompt_compiled 90` compiles the kernels of prompts and experts for that card."""

from __future__ import annotations

import sys
from typing import Any

import triton  # type: ignore[import-not-found, unused-ignore]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton import dequantize, expert_items, prompt_experts, prompt_matmul
from tests.kernels.triton.starting import with_start

COUNTS = ("rows", "count", "experts", "chosen", "first_entry", "last_entry", "pairs", "slots")
HALF, FULL, WORD, LONG = "*bf16", "*fp32", "*i32", "i32"
LEFT, RIGHT, RESULT = "tensordesc<bf16[128, 64]>", "tensordesc<bf16[256, 64]>", "tensordesc<bf16[128, 256]>"
Kinds = list[str | int | bool]
# Each argument's type in order; a number is a compile-time constant. Then warps and stages.
KERNELS: dict[str, tuple[Any, Kinds, int, int]] = {
    **{
        f"dequantize of {bits} bits{', gated' * gated}": (
            dequantize._dequantize,
            [WORD, HALF, WORD, LONG, LONG, words, bits, 256, gated],
            4,
            3,
        )
        for bits, words in ((4, 144), (5, 176), (6, 208), (8, 272), (16, 512))
        for gated in (False, True)
    },
    "look_up": (dequantize._look_up, [WORD, WORD, HALF, LONG, 144, 4, 512], 4, 3),
    "multiply": (
        prompt_matmul._multiply,
        [LEFT, RIGHT, HALF, HALF, LONG, LONG, LONG, 128, 256, 64, 8, False],
        8,
        3,
    ),
    "multiply through": (
        prompt_matmul._multiply,
        [LEFT, RIGHT, RESULT, HALF, LONG, LONG, LONG, 128, 256, 64, 8, True],
        8,
        3,
    ),
    "multiply resident": (
        prompt_matmul._multiply_resident,
        [LEFT, RIGHT, RESULT, HALF, LONG, LONG, LONG, 128, 256, 64, 8, True, 132],
        8,
        3,
    ),
    "multiply groups": (
        prompt_experts._multiply_groups,
        [LEFT, RIGHT, HALF, WORD, *[LONG] * 5, 128, 256, 64, True],
        8,
        3,
    ),
    "count pairs": (prompt_experts._count_pairs, [WORD, WORD, LONG, 256, 256], 4, 3),
    "sort pairs": (
        prompt_experts._sort_pairs,
        [WORD, WORD, "*i64", WORD, WORD, WORD, *[LONG] * 5, 256, 256, 32, 8],
        8,
        3,
    ),
    "spread rows": (prompt_experts._spread_rows, [HALF, WORD, HALF, LONG, 8, 4096], 8, 3),
    "sum slots": (prompt_experts._sum_slots, [HALF, WORD, FULL, FULL, LONG, 8, 1024], 4, 3),
    **{
        f"choose and list {rows}": (
            expert_items._choose_and_list,
            [*(FULL, FULL, WORD, FULL, WORD, WORD, WORD, LONG, LONG, "fp32", LONG), 6, 8, True, True, 32, rows, 128, 8],
            min(rows, 8),
            3,
        )
        for rows in (1, 32)
    },
    "list items": (expert_items._list_items, [*[WORD] * 4, LONG, LONG, 256, 32, 8], 8, 3),
}


def compiled(name: str, architecture: int) -> Any:
    """A kernel's machine code and what the compiler says of it."""
    kernel, kinds, warps, stages = KERNELS[name]
    names, kinds = kernel.arg_names, with_start(kernel, kinds, architecture)
    assert len(names) == len(kinds), (name, names)
    signature = {n: k if isinstance(k, str) else "constexpr" for n, k in zip(names, kinds, strict=True)}
    constants = {(i,): kind for i, kind in enumerate(kinds) if not isinstance(kind, str)}
    # What a launch finds out by itself: addresses and sizes are multiples of 16, all but counts of rows.
    lined = {
        (i,): [["tt.divisibility", 16]]
        for i, (n, kind) in enumerate(zip(names, kinds, strict=True))
        if isinstance(kind, str) and (kind.startswith("*") or (kind == LONG and n not in COUNTS))
    }
    source = triton.compiler.ASTSource(kernel, signature, constants, lined)
    target = GPUTarget("cuda", architecture, 32)
    return triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})


if __name__ == "__main__":
    for name in sys.argv[2:] or KERNELS:
        made = compiled(name, int(sys.argv[1]))
        assert made.asm["cubin"][:4] == b"\x7fELF"
        print(f"{name}: {made.metadata.shared} bytes shared", flush=True)
