"""MLX's allocator as a `MemoryRuntime`, and the machine's figures that a budget is made of.

On a CPU MLX counts its own arrays alone, while rows, states and unpacked weights are numpy's, and it binds no limit:
the figures are unknown there and arithmetic stands in.
"""

from __future__ import annotations

import os
from typing import Any, cast

from tensorfold.domain.memory.budgets import Machine


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


def machine(*, cpu: bool) -> Machine:
    """RAM as the system tells it, and the GPU's recommended working set as its driver does."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if cpu:
        return Machine(ram)
    stated = _mx().device_info().get("max_recommended_working_set_size")
    return Machine(ram, int(stated) if stated else None)


def _mx() -> Any:
    import mlx.core as mx

    return cast(Any, mx)
