"""How a kernel of this folder is built and called.

A kernel's generated signature depends on the inputs' dtypes and on whether an input is small enough for constant
memory. Both are part of the name here, so that no two signatures share one, whatever MLX makes of a name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

LANES = 32
CONSTANT_BELOW = 8  # MLX hands over an input of fewer elements in constant memory
SHORT_NAMES = {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16", mx.int32: "i32", mx.uint32: "u32"}


@dataclass(frozen=True, slots=True)
class MetalKernel:
    """A body, the names of its buffers, and the functions it needs.

    A body may point at an input only if that never has fewer than eight elements; it indexes smaller ones.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: str
    header: str = ""

    def __call__(
        self,
        inputs: Sequence[mx.array | float | int],
        *,
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype],
        **template: int | bool | mx.Dtype,
    ) -> list[mx.array]:
        """Launch over `grid` threads; `template` gives the constants of the body."""
        built = _built(mx.fast.metal_kernel, self, "_".join(_kind(one) for one in inputs))
        made: list[mx.array] = built(
            inputs=list(inputs),
            template=list(template.items()),
            grid=grid,
            threadgroup=threadgroup,
            output_shapes=list(shapes),
            output_dtypes=list(dtypes),
        )
        return made


def _kind(one: mx.array | float | int) -> str:
    if not isinstance(one, mx.array):
        return "s"
    return SHORT_NAMES.get(one.dtype, "x") + ("c" if one.size < CONSTANT_BELOW else "")


@functools.cache
def _built(factory: Callable[..., object], kernel: MetalKernel, kinds: str) -> Any:
    """The compiled kernel. `factory` is part of the key: a test puts another one in MLX's place."""
    return factory(
        name=f"tensorfold_{kernel.name}_{kinds}",
        input_names=list(kernel.inputs),
        output_names=list(kernel.outputs),
        source=kernel.body,
        header="using namespace metal;\n" + kernel.header,
    )


def parts(count: int, size: int) -> int:
    """How many parts of `size` cover `count`."""
    return -(-count // size)
