"""`python -m tests.kernels.triton.routing_compiled 90` compiles a router's sums and finds them laid out alike.

A sum's bits follow from its layout, which the compiler chooses for each shape: it must be one for all row counts.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import triton  # type: ignore[import-not-found, unused-ignore]
from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton import routers
from tests.kernels.triton.starting import with_start

NUMBERS = {"bf16": "*bf16", "float32": "*fp32"}
POINTERS, SIZES = ("x", "weight", "out"), ("width", "experts")


def layout(weight: str, tall: int, block: int, width_lined: bool, architecture: int) -> str:
    """How the numbers of `tall` rows lie when they are summed; `width_lined`: rows begin at multiples of 16 numbers."""
    kinds: list[Any] = ["*bf16", weight, "*fp32", "i32", "i32", "i32", tall, block]
    kernel = routers._logits
    names, kinds = kernel.arg_names, with_start(kernel, kinds, architecture)
    signature = {n: k if isinstance(k, str) else "constexpr" for n, k in zip(names, kinds, strict=True)}
    constants = {(i,): kind for i, kind in enumerate(kinds) if not isinstance(kind, str)}
    known = (*POINTERS, *(SIZES if width_lined else ()))
    lined = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name in known}
    source = triton.compiler.ASTSource(kernel, signature, constants, lined)
    target = GPUTarget("cuda", architecture, 32)
    made = triton.compile(source, target=target, options={"num_warps": min(32, block // 256)}).asm["ttgir"]
    summed = re.search(r'"tt\.reduce".*?\}\) : \(tensor<\d+x\d+xf32, (#\w+)>\)', made, re.DOTALL)
    assert summed, "no sum of rows was found"
    told = re.search(rf"^{summed[1]} = (.*)$", made, re.MULTILINE)
    assert told, f"{summed[1]} is not told"
    return told[1]


if __name__ == "__main__":
    for name, weight in NUMBERS.items():
        for block in (256, 4096):
            for width_lined in (True, False):
                found = {layout(weight, tall, block, width_lined, int(sys.argv[1])) for tall in (1, 2, 4, 8)}
                assert len(found) == 1, (name, block, width_lined, found)
        print(f"logits_{name}", flush=True)
