"""A few threads that share one piece of arithmetic and then wait without spinning.

The BLAS's own threads spin while they wait, which on a busy machine makes a product a hundred times slower; so products
are cut small enough that the BLAS never starts them, and the pieces are shared out here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

MOST = 8


def processors() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """`count` threads in all, the caller's among them; by default one for each processor, at most eight."""

    def __init__(self, count: int | None = None) -> None:
        self.count = max(1, min(MOST, processors()) if count is None else count)
        self._pool = ThreadPoolExecutor(self.count - 1, "rows") if self.count > 1 else None

    def share(self, size: int, call: Callable[[int, int], None]) -> None:
        """Run `call(start, stop)` over pieces of range(size), one for each thread, and wait for all of them."""
        edges = [size * at // self.count for at in range(self.count + 1)]
        if self._pool is None or size < 2:
            call(0, size)
            return
        pending = [self._pool.submit(call, edges[i], edges[i + 1]) for i in range(self.count - 1)]
        try:
            call(edges[-2], size)
        finally:
            faults = [fault for task in pending if (fault := task.exception()) is not None]
        if faults:
            raise faults[0]

    def close(self) -> None:
        """End the threads; further work runs on the caller's."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
