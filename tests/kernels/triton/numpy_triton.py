"""Enough of Triton's language in numpy to run kernels that only load, reckon and store: no torch, no Triton, no device.

`kernels_of(name)` imports a module of `kernels/triton` over this language. A block is an array, a scalar an array of no
axes, so arithmetic, wrapping and comparisons are numpy's; what a compiler would refuse is not refused here.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_KERNELS = Path(__file__).parents[3] / "kernels" / "triton"


class Block(np.ndarray[Any, Any]):
    """An array with Triton's casts; results of no axes stay arrays."""

    def to(self, kind: Any, bitcast: bool = False) -> Block:
        """Another type, of the same number or of the same bits."""
        return block(self.view(kind) if bitcast else self.astype(kind))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Block:
        return np.asarray(array).view(Block)


def block(values: Any, kind: Any = None) -> Block:
    """Any number or array as a block."""
    return np.asarray(values, kind).view(Block)


class Memory:
    """A tensor, and a pointer into it once something was added."""

    def __init__(self, values: Any, at: Any = 0) -> None:
        self.values, self.at = values, at
        self.shape = values.shape

    def stride(self, axis: int) -> int:
        """Elements from one entry of an axis to the next."""
        return int(self.values.strides[axis] // self.values.itemsize)

    def zero_(self) -> None:
        """As a tensor's."""
        self.values[...] = 0

    def __add__(self, more: Any) -> Memory:
        return Memory(self.values, self.at + more)

    def __sub__(self, less: Any) -> Memory:
        return Memory(self.values, self.at - less)


class Jitted:
    """A function that is called as it stands, or launched over a grid one program after another."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, *given: Any) -> Any:
        return self._fn(*given)

    def __getitem__(self, grid: Sequence[int]) -> Callable[..., None]:
        def launch(*given: Any, early: bool, **options: Any) -> None:
            arguments = [
                block(each) if isinstance(each, int) and not isinstance(each, bool) else each for each in given
            ]
            for place in itertools.product(*map(range, grid)):
                _place[:] = (*place, *[0] * (3 - len(place)))
                self._fn(*arguments, early=early)

        return launch


def _jit(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """The decorator, with options and without."""
    return Jitted if fn is None else Jitted(fn)


_place: list[int] = [0, 0, 0]


def _load(pointer: Memory, mask: Any = None, other: Any = 0) -> Block:
    flat, at = pointer.values.reshape(-1), np.asarray(pointer.at)
    if mask is None:
        return block(flat[at])
    safe = np.where(mask, at, 0)
    return block(np.where(mask, flat[safe], np.asarray(other).astype(flat.dtype)))


def _store(pointer: Memory, value: Any, mask: Any = None) -> None:
    flat, at = pointer.values.reshape(-1), np.asarray(pointer.at)
    value = np.broadcast_to(np.asarray(value).astype(flat.dtype), at.shape)
    if mask is None:
        flat[at] = value
    else:
        kept = np.broadcast_to(mask, at.shape)
        flat[at[kept]] = value[kept]


def _atomic(choose: Callable[[Any, Any], Any]) -> Callable[..., Block]:
    """One lane after another where lanes share an address; the values found there."""

    def run(pointer: Memory, value: Any, mask: Any = True, sem: str = "acq_rel") -> Block:
        flat, at = pointer.values.reshape(-1), np.asarray(pointer.at)
        lanes = np.flatnonzero(np.broadcast_to(mask, at.shape))
        before = np.zeros(at.size, flat.dtype)
        places, values = at.reshape(-1)[lanes], np.broadcast_to(value, at.shape).reshape(-1)[lanes]
        if len(set(places.tolist())) == len(places):
            before[lanes] = flat[places]
            flat[places] = choose(before[lanes], values)
        else:
            for lane, place, one in zip(lanes, places, values, strict=True):
                before[lane] = flat[place]
                flat[place] = choose(before[lane], one)
        return block(before.reshape(at.shape))

    return run


def _where(condition: Any, left: Any, right: Any) -> Block:
    return block(np.where(condition, left, right))


def _range(*given: Any, num_stages: int = 0) -> Iterator[Block]:
    return (block(at) for at in range(*map(int, given)))


def _high_half(left: Any, right: Any) -> Block:
    return block(int(left) * int(right) >> 64, np.uint64)


def _language() -> Any:
    made: Any = ModuleType("triton.language")
    made.constexpr = object
    for kind in ("int1", "int32", "int64", "uint64", "float32", "float64"):
        setattr(made, kind, np.dtype("bool" if kind == "int1" else kind))
    made.program_id = lambda axis: block(_place[axis], np.int32)
    made.arange = lambda low, high: block(np.arange(int(low), int(high), dtype=np.int32))
    made.full = lambda shape, value, kind: block(np.full([int(each) for each in shape], value, kind))
    made.zeros = lambda shape, kind: block(np.zeros([int(each) for each in shape], kind))
    made.max = lambda values, axis: block(np.max(values, axis))
    made.min = lambda values, axis: block(np.min(values, axis))
    made.sum = lambda values, axis: block(np.sum(values, axis, dtype=values.dtype))
    made.cumsum = lambda values, axis: block(np.cumsum(values, axis, dtype=values.dtype))
    made.minimum, made.maximum = (lambda a, b: block(np.minimum(a, b))), (lambda a, b: block(np.maximum(a, b)))
    made.exp, made.log = (lambda a: block(np.exp(a))), (lambda a: block(np.log(a)))
    made.exp2, made.log2, made.abs = (lambda a: block(np.exp2(a))), (lambda a: block(np.log2(a))), np.abs
    made.atomic_add, made.atomic_max = _atomic(np.add), _atomic(np.maximum)
    made.fma = lambda a, b, c: block((a * b + c).astype(c.dtype))
    made.zeros_like = lambda values: block(np.zeros_like(values))
    made.debug_barrier = lambda: None
    made.load, made.store, made.where, made.range, made.umulhi = _load, _store, _where, _range, _high_half
    made.static_range = made.range
    return made


def kernels_of(name: str) -> Any:
    """The module `kernels/triton/NAME.py`, a copy of its own over this language."""
    triton: Any = ModuleType("triton")
    triton.jit, triton.language = _jit, _language()
    triton.next_power_of_2 = lambda count: 1 << (int(count) - 1).bit_length()
    triton.cdiv = lambda count, size: -(-count // size)
    alone: Any = ModuleType("tensorfold.kernels.triton.following")
    alone.begin, alone.follow = (lambda early: None), (lambda tensor: {"early": False})
    fakes = {"triton": triton, "triton.language": triton.language, alone.__name__: alone}
    held = {each: sys.modules.get(each) for each in fakes}
    sys.modules.update(fakes)
    try:
        spec = importlib.util.spec_from_file_location(f"numpy_{name}", _KERNELS / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        for each, value in held.items():
            if value is None:
                del sys.modules[each]
            else:
                sys.modules[each] = value
    return module
