"""`python -m tests.kernels.triton.sampler_compiled 90` compiles sampler and acceptance, with no card."""

from __future__ import annotations

import sys
from typing import Any

import triton  # type: ignore[import-not-found, unused-ignore]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton import acceptance, sampler
from tests.kernels.triton.starting import starts_early

FULL, WORD, LONG, REAL = "*fp32", "*i32", "*i64", "*fp64"
KINDS = {
    **dict.fromkeys(("logits", "coarse_edges", "fine_edges", "edges", "bounds", "shares"), FULL),
    **dict.fromkeys(("seeds", "positions", "firsts", "lows", "totals", "coarse_sums", "fine_sums", "sums"), LONG),
    **dict.fromkeys(("divisors", "top_ps", "reaches"), REAL),
    **dict.fromkeys(("size", "stride", "words", "length", "blocks", "ends_each"), "i32"),
}
CONSTANTS = {"named": True, "sure": True, "block": 1024, "allowed": 8192, "most": 256, "coarse_steps": 32}
KERNELS: dict[str, tuple[Any, dict[str, int], int]] = {
    "survey": (sampler._survey, {}, 8),
    "coarse": (sampler._coarse, {"steps": 32}, 8),
    "fine": (sampler._fine, {"steps": 16}, 8),
    "gather": (sampler._gather, {"steps": 16}, 8),
    "settle": (sampler._settle, {"steps": 16, "lanes": 512}, 16),
    "accept": (acceptance._accept, {"size": 64, "ends": 16}, 1),
}

if __name__ == "__main__":
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    for name, (kernel, own, warps) in KERNELS.items():
        constants = (own if name == "accept" else CONSTANTS | own) | starts_early(kernel, int(sys.argv[1]))
        constants = constants | starts_early(kernel, int(sys.argv[1]))
        signature = {n: "constexpr" if n in constants else KINDS.get(n, WORD) for n in kernel.arg_names}
        fixed = {(at,): constants[n] for at, n in enumerate(kernel.arg_names) if n in constants}
        source = triton.compiler.ASTSource(kernel, signature, fixed)
        made = triton.compile(source, target=target, options={"num_warps": warps})
        assert made.asm["cubin"][:4] == b"\x7fELF"
        print(name, made.metadata.shared, flush=True)
