# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Programmatic dependent launch: a kernel starts while the one before it ends, and waits on the card for its results.

A kernel launched with `**follow(out)` calls `begin(early)` before it touches anything that an earlier launch writes,
and in every program: one that leaves without waiting would let the launch behind it run before the launch ahead of it.
What stands before `begin` may read weights alone.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import triton
import triton.language as tl

Tensor = Any
LEAST = (9, 0)
"""The compute capability from which cards know it."""


@triton.jit
def begin(early: tl.constexpr):
    """Let the launch behind this one start, and wait for everything before this one."""
    if early:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@cache
def _capable(device: int) -> bool:
    import torch

    return bool(torch.cuda.get_device_capability(device) >= LEAST)


def follow(tensor: Tensor) -> dict[str, Any]:
    """How a kernel over a tensor is launched: early where its card can."""
    early = tensor.is_cuda and _capable(tensor.device.index)
    return {"early": early, "launch_pdl": early}
