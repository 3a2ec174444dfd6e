"""MLX's allocator as a `MemoryRuntime`, and the machine's figures that a budget is made of.

On a CPU MLX counts its own arrays alone, while rows, states and unpacked weights are numpy's, and it binds no limit:
the figures are unknown there and arithmetic stands in.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from tensorfold.adapters.mlx.runtime import Runtime
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.state import ITEM_BYTES
from tensorfold.domain.memory.budgets import Machine
from tensorfold.domain.memory.held_weights import bound_bytes, drafted_rows_bytes, drafter_bytes
from tensorfold.domain.memory.mlx_holding import footprint
from tensorfold.domain.memory.plan import Footprint

_MOST_UNPACKED = 8 << 30
_HEAD = "mtp."
_NO_MEMORY = ("[malloc]", "[metal::malloc]", "Insufficient Memory", "OutOfMemory")
P = ParamSpec("P")
R = TypeVar("R")


class MlxMemory:
    """The allocator of a GPU, or of a `cpu`, which tells and binds nothing."""

    def __init__(self, *, cpu: bool) -> None:
        self._cpu = cpu

    def active(self) -> int | None:
        """Bytes of arrays."""
        return None if self._cpu else int(_mx().get_active_memory())

    def cached(self) -> int | None:
        """Bytes of freed buffers that are kept."""
        return None if self._cpu else int(_mx().get_cache_memory())

    def peak(self) -> int | None:
        """Most bytes of arrays so far."""
        return None if self._cpu else int(_mx().get_peak_memory())

    def limit(self, size: int) -> bool:
        """Bind the allocator; a CPU's is left as it is."""
        if not self._cpu:
            _mx().set_memory_limit(size)
        return not self._cpu

    def limit_cache(self, size: int) -> bool:
        """Bind the freed buffers that are kept, on any device; a CPU does not hold to it."""
        _mx().set_cache_limit(size)
        return not self._cpu

    def release(self) -> None:
        """Hand freed buffers back."""
        _mx().clear_cache()


def allocating(call: Callable[P, R]) -> Callable[P, R]:
    """The call, with MLX's own error for memory that cannot be had raised as MemoryError.

    MLX raises RuntimeError for everything; its words are those of its allocator and of Metal's command buffers. On a
    CPU it does not raise at all.
    """

    @wraps(call)
    def named(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return call(*arguments, **options)
        except RuntimeError as fault:
            if any(words in str(fault) for words in _NO_MEMORY):
                raise MemoryError(str(fault)) from fault
            raise

    return named


def machine(*, cpu: bool) -> Machine:
    """RAM as the system tells it, and the GPU's recommended working set as its driver does."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if cpu:
        return Machine(ram)
    stated = _mx().device_info().get("max_recommended_working_set_size")
    return Machine(ram, int(stated) if stated else None)


def fits_unpacked(bound: Mapping[str, Bound], ram: int) -> bool:
    """Whether a CPU holds all matrices in float32: within 8 GiB and half of the machine's memory."""
    return 4 * sum(math.prod(found.slot.shape) for found in bound.values()) <= min(_MOST_UNPACKED, ram // 2)


def held(checkpoint: ModelCheckpoint, runtime: Runtime) -> Footprint:
    """What a model takes when it is loaded, from headers alone."""
    plan, bound, drafts, drafter = checkpoint.plan, checkpoint.bound, checkpoint.drafts, checkpoint.drafter
    head = drafter is None and plan.mtp is not None and drafts.mtp_drafts != 0
    head = head and any(path.startswith(_HEAD) for path in bound)
    unpacked = runtime.cpu and fits_unpacked(bound, runtime.memory)
    dtype = "float32" if runtime.cpu else plan.activation
    loaded = bound if head else {path: found for path, found in bound.items() if not path.startswith(_HEAD)}
    weights = bound_bytes(loaded, checkpoint.facts.tensors, dtype, unpacked=unpacked)
    item = 4 if unpacked else ITEM_BYTES[dtype]
    spans = plan.mtp.draft_ids if head and plan.mtp is not None else () if drafter is None else drafter.plan.draft_ids
    weights += drafted_rows_bytes(plan, spans, None, item)
    if drafter is not None:
        weights += drafter_bytes(drafter.plan, 0 if unpacked else drafts.drafter_bits, item)
    return footprint(plan, weights, cpu=runtime.cpu, head=head, drafter=None if drafter is None else drafter.plan)


def _mx() -> Any:
    import mlx.core as mx

    return cast(Any, mx)
