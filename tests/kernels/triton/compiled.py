"""`python -m tests.kernels.triton.compiled 90` compiles every Triton kernel for that card, with no card here."""

from __future__ import annotations

import sys
from typing import Any

import triton  # type: ignore[import-not-found, unused-ignore]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton import norms, routers
from tests.kernels.triton.starting import with_start

HALF, FULL, WORD, LONG = "*bf16", "*fp32", "*i32", "i32"
# Each argument's type in order; a number is a compile-time constant.
KERNELS: dict[str, tuple[Any, list[str | int | bool]]] = {
    "add_norm": (norms._add_norm, [HALF, HALF, HALF, HALF, HALF, LONG, "fp32", True, 8192]),
    "gated_silu": (norms._gated_silu, [HALF, HALF, LONG, 1024]),
    "squared_relu": (norms._squared_relu, [HALF, HALF, LONG, 1024]),
    "combine": (norms._combine, [HALF, FULL, HALF, LONG, LONG, 512]),
    "logits": (routers._logits, [HALF, HALF, FULL, LONG, LONG, LONG, 8, 4096]),
    "choose": (
        routers._choose,
        [FULL, FULL, WORD, FULL, LONG, LONG, "fp32", 6, 8, False, False, True, True, 4, 128],
    ),
}

if __name__ == "__main__":
    target = GPUTarget("cuda", int(sys.argv[1]), 32)
    for name, (kernel, kinds) in KERNELS.items():
        names, kinds = kernel.arg_names, with_start(kernel, kinds, int(sys.argv[1]))
        assert len(names) == len(kinds), name
        signature = {n: k if isinstance(k, str) else "constexpr" for n, k in zip(names, kinds, strict=True)}
        constants = {(i,): kind for i, kind in enumerate(kinds) if not isinstance(kind, str)}
        source = triton.compiler.ASTSource(kernel, signature, constants)
        assert triton.compile(source, target=target).asm["cubin"][:4] == b"\x7fELF"
        print(name, flush=True)
