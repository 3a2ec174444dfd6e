"""`python -m tests.kernels.triton.draft_compiled 90` compiles the kernels of draft heads for that card, without one."""

from __future__ import annotations

import sys
from typing import Any

import triton  # type: ignore[import-not-found, unused-ignore]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton import draft_ahead, draft_block, draft_candidates, draft_rows
from tests.kernels.triton.starting import starts_early

HALF, FULL, WORD, LONG, REAL = "*bf16", "*fp32", "*i32", "*i64", "*fp64"
KINDS = {
    **dict.fromkeys(("x", "kernels", "out", "projected", "query", "keys", "values", "rings"), HALF),
    **dict.fromkeys(("base", "q_weight", "k_weight", "k_weights", "most", "total", "mixed"), FULL),
    **dict.fromkeys(("shares", "told_shares"), FULL),
    **dict.fromkeys(("eps", "factor", "scale"), "fp32"),
    **dict.fromkeys(("turns",), REAL),
    **dict.fromkeys(("draws_at",), LONG),
    **dict.fromkeys(("group", "length", "capacity", "window", "layer", "parts"), "i32"),
}
COUNTS = dict.fromkeys(("lanes", "rows", "width", "stride", "shift", "nobody"), "i32")
KERNELS: dict[str, tuple[Any, dict[str, Any], dict[str, str]]] = {
    "mix": (
        draft_block._mix, {"branch": 1, "taps": 2, "block": 1024}, {"width": "i32", "groups": "i32"},
    ),
    "place_block": (draft_block._place_block, {"heads": 32, "groups": 8, "width": 128, "pairs": 64}, {}),
    "place_context": (draft_block._place_context, {"layers": 5, "groups": 8, "width": 128, "pairs": 64}, {}),
    "read": (
        draft_block._read,
        {"causal": False, "heads": 32, "groups": 8, "width": 128, "tile": 64, "part_keys": 256, "step": 64},
        {"layers": "i32"},
    ),
    "add_parts": (draft_block._add_parts, {"width": 128}, {}),
    "join": (
        draft_rows._join,
        {"first_is_zero": False, "block": 4096},
        {"embedded": HALF, "hidden": HALF, "e_weight": FULL, "h_weight": FULL, "width": "i32"}
        | dict.fromkeys(("e_eps", "h_eps"), "fp32"),
    ),
    "take": (
        draft_rows._take,
        {"taps": 5, "block": 2048},
        dict.fromkeys(("first", "second", "third", "fourth", "fifth", "sixth"), HALF)
        | dict.fromkeys(("width", "stride"), "i32"),
    ),
    "advance": (draft_rows._advance, {"block": 8, "wide": 128}, {"lanes": "i32", "width": "i32"}),
    "enter_chains": (
        draft_ahead._enter_chains,
        {"block": 8, "most": 128, "part": 2048},
        {"stream": HALF, "pool": HALF} | dict.fromkeys(("wide", "nobody_row", "all_lanes"), "i32") | COUNTS,
    ),
    "keep_tokens": (
        draft_ahead._keep_tokens,
        {"taps": 5, "block": 8, "part": 2048},
        dict.fromkeys(("first", "second", "third", "fourth", "fifth", "sixth", "tapped"), HALF)
        | COUNTS | {"rings": WORD, "row_stride": "i32"},
    ),
    "best_of_parts": (
        draft_candidates._best_of_parts, {"count": 16, "block": 2048}, {"logits": FULL, "values": FULL} | COUNTS
    ),
    "best": (
        draft_candidates._best,
        {"count": 16, "named": True, "block": 1024},
        {"values": FULL, "told": FULL} | dict.fromkeys(("held", "numbers"), "i32"),
    ),
    "pairs": (
        draft_candidates._pairs,
        {"count": 16, "block": 16, "wide": 256},
        dict.fromkeys(("mixed", "before", "behind"), HALF)
        | {"told": FULL} | dict.fromkeys(("rank", "numbers", "each"), "i32"),
    ),
    "start_blocks": (draft_ahead._start_blocks, {"block": 8, "most": 16}, COUNTS),
}  # fmt: skip

if __name__ == "__main__":
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    for name, (kernel, constants, others) in KERNELS.items():
        kinds, constants = {**KINDS, **others}, constants | starts_early(kernel, int(sys.argv[1]))
        signature = {n: "constexpr" if n in constants else kinds.get(n, WORD) for n in kernel.arg_names}
        fixed = {(at,): constants[n] for at, n in enumerate(kernel.arg_names) if n in constants}
        made = triton.compile(triton.compiler.ASTSource(kernel, signature, fixed), target=target)
        assert made.asm["cubin"][:4] == b"\x7fELF"
        print(name, flush=True)
