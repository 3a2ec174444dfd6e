"""A card's allocator as a `MemoryRuntime`, and the figures of card and machine that a budget is made of.

Torch is imported when a figure is first asked for, so that tests can hand in figures that were recorded elsewhere. The
allocator is left unbound: pools are allocated once, by the same arithmetic that admits requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from tensorfold.domain.memory.budgets import Card, Machine

_MEMINFO = Path("/proc/meminfo")
_NO_MEMORY = ("out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation")
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Figures:
    """Where figures come from: torch's allocator of one card, or a test.

    `info` gives free and total bytes of the card, `unified` whether card and processor share one memory. `allocated`,
    `reserved` and `most` are bytes in use, bytes held of the card, and the most in use so far; `release` hands back
    what is held and not in use. `meminfo` is the text of /proc/meminfo.
    """

    info: Callable[[], tuple[int, int]]
    unified: Callable[[], bool]
    allocated: Callable[[], int]
    reserved: Callable[[], int]
    most: Callable[[], int]
    release: Callable[[], None]
    meminfo: Callable[[], str]


class CudaMemory:
    """The allocator of the card that the model is on."""

    def __init__(self, figures: Figures | None = None) -> None:
        self._figures = figures or of_torch()

    def active(self) -> int | None:
        """Bytes of tensors, the pools of lanes as a whole among them."""
        return self._figures.allocated()

    def cached(self) -> int | None:
        """Bytes held of the card and in no tensor."""
        return max(0, self._figures.reserved() - self._figures.allocated())

    def peak(self) -> int | None:
        """Most bytes of tensors so far."""
        return self._figures.most()

    def limit(self, size: int) -> bool:
        """Nothing is bound: an estimate that was a little low costs some of what is kept free, not the server."""
        return False

    def limit_cache(self, size: int) -> bool:
        """Nothing is bound."""
        return False

    def release(self) -> None:
        """Hand freed buffers back."""
        self._figures.release()


def allocating(call: Callable[P, R]) -> Callable[P, R]:
    """The call, with an error for memory that cannot be had, torch's or the driver's, raised as MemoryError."""

    @wraps(call)
    def named(*arguments: P.args, **options: P.kwargs) -> R:
        try:
            return call(*arguments, **options)
        except RuntimeError as fault:
            if _lacks_memory(fault):
                raise MemoryError(str(fault)) from fault
            raise

    return named


def machine(figures: Figures | None = None) -> Machine:
    """RAM and the first card that torch sees, as they are now."""
    found = figures or of_torch()
    free, total = found.info()
    host = read_meminfo(found.meminfo())
    return Machine(host["MemTotal"], card=Card(total, free, host["MemAvailable"], unified=found.unified()))


def read_meminfo(text: str) -> dict[str, int]:
    """Bytes by name, of lines that state kB. Raises ValueError where total or available memory is not among them."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdecimal():
            found[name] = int(words[0]) << 10
    if missing := {"MemTotal", "MemAvailable"} - found.keys():
        raise ValueError(f"/proc/meminfo does not state {' and '.join(sorted(missing))}")
    return found


def of_torch() -> Figures:
    """The figures of torch's current card."""
    cuda = _torch().cuda
    return Figures(
        info=lambda: cast(tuple[int, int], cuda.mem_get_info()),
        unified=lambda: bool(getattr(cuda.get_device_properties(cuda.current_device()), "is_integrated", False)),
        allocated=lambda: int(cuda.memory_allocated()),
        reserved=lambda: int(cuda.memory_reserved()),
        most=lambda: int(cuda.max_memory_allocated()),
        release=lambda: cast(None, cuda.empty_cache()),
        meminfo=_MEMINFO.read_text,
    )


def _lacks_memory(fault: RuntimeError) -> bool:
    names = {kind.__name__ for kind in type(fault).__mro__}
    return "OutOfMemoryError" in names or any(words in str(fault) for words in _NO_MEMORY)


def _torch() -> Any:
    import torch

    return cast(Any, torch)
