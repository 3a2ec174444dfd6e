# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Programmatic dependent launch: a kernel starts while the one before it ends, and waits on the card for its results.

A kernel launched with `**follow(out)` calls `begin(early)` before it touches anything that an earlier launch writes,
and in every program: one that leaves without waiting would let the launch behind it run before the launch ahead of it.
What stands before `begin` may read weights, and what no launch of the same round writes.
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
    let_next(early)
    wait_before(early)


@triton.jit
def let_next(early: tl.constexpr):
    """Let the launch behind this one start."""
    if early:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_before(early: tl.constexpr):
    """Wait for everything before this launch.

    Where that comes before `let_next`, the launch behind this one starts when all before this one's predecessor has
    ended, and may read what that wrote before it waits itself.
    """
    if early:
        tl.extra.cuda.gdc_wait()


@cache
def _capable(device: int) -> bool:
    import torch

    return bool(torch.cuda.get_device_capability(device) >= LEAST)


def follow(tensor: Tensor) -> dict[str, Any]:
    """How a kernel over a tensor is launched: early where its card can."""
    early = tensor.is_cuda and _capable(tensor.device.index)
    return {"early": early, "launch_pdl": early}
