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
    **dict.fromkeys(("logits", "tops", "lows", "coarse_edges", "fine_edges", "edges", "list_values", "shares"), FULL),
    **dict.fromkeys(("seeds", "positions", "coarse_weights", "fine_weights", "weights", "ranks"), LONG),
    **dict.fromkeys(("divisors", "top_ps", "reaches", "scores"), REAL),
    **dict.fromkeys(("size", "stride", "words", "spans", "length", "ends_each"), "i32"),
}
CONSTANTS = {"named": True, "sure": True, "count": 16, "lanes": 256, "most": 128, "allowed": 4096}
KERNELS: dict[str, tuple[Any, int]] = {
    "peaks": (sampler._peaks, 4),
    "coarse": (sampler._coarse, 8),
    "fine": (sampler._fine, 8),
    "gather": (sampler._gather, 4),
    "settle": (sampler._settle, 16),
    "accept": (acceptance._accept, 1),
}

if __name__ == "__main__":
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    for name, (kernel, warps) in KERNELS.items():
        constants = {"size": 64, "ends": 16} if name == "accept" else CONSTANTS
        constants = constants | starts_early(kernel, int(sys.argv[1]))
        signature = {n: "constexpr" if n in constants else KINDS.get(n, WORD) for n in kernel.arg_names}
        fixed = {(at,): constants[n] for at, n in enumerate(kernel.arg_names) if n in constants}
        source = triton.compiler.ASTSource(kernel, signature, fixed)
        made = triton.compile(source, target=target, options={"num_warps": warps})
        assert made.asm["cubin"][:4] == b"\x7fELF"
        print(name, made.metadata.shared, flush=True)
