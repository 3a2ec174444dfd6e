"""A stand-in for `mx.fast.metal_kernel`: the same arguments, run by the machine of the shim.

Checks what MLX and Metal would refuse, then what they would not notice: writes beside buffers and elements of an
output that nobody wrote.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from tests.emulator import build, linter, memory
from tests.emulator.errors import EmulatorError
from tests.emulator.orders import PLAIN, Order, native
from tests.emulator.translate import Argument, shape_words, translate

MAX_THREADS = 1024
CONSTANT_BELOW = 8  # MLX puts an input of fewer elements into constant memory
MESSAGE_BYTES = 1024

LAUNCHED: set[str] = set()  # names of all kernels that ran

Template = Sequence[tuple[str, Any]]
Size = tuple[int, int, int]


class EmulatedKernel:
    """One kernel under one `Order`; calls take and give MLX arrays, computed at once."""

    def __init__(
        self,
        order: Order,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        ensure_row_contiguous: bool = True,
        atomic_outputs: bool = False,
        compile_options: dict[str, str] | None = None,
    ) -> None:
        if not re.fullmatch(r"\w+", name):
            raise EmulatorError(f"'{name}' is no name for a kernel: letters, digits and underscores are")
        if atomic_outputs:
            raise EmulatorError(f"{name}: atomic outputs are not emulated")
        if compile_options and compile_options.get("math_mode", "safe") != "safe":
            raise EmulatorError(f"{name}: only the math mode 'safe' keeps the order of operations")
        self.order, self.name, self.source, self.header = order, name, source, header
        self.input_names, self.output_names = tuple(input_names), tuple(output_names)

    def __call__(
        self,
        *,
        inputs: Sequence[mx.array | float | int | bool],
        grid: Size,
        threadgroup: Size,
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[mx.Dtype],
        template: Template | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: object = None,
    ) -> list[mx.array]:
        """Run it. Raises `EmulatorError`."""
        try:
            LAUNCHED.add(self.name)
            arrays = [one if isinstance(one, mx.array) else mx.array(one) for one in inputs]
            shapes = [tuple(shape) for shape in output_shapes]
            self._check(arrays, grid, threadgroup, shapes, output_dtypes)
            run = self._runner(arrays, list(output_dtypes), tuple(template or ()), grid, threadgroup)
            return self._run(run, arrays, shapes, list(output_dtypes), init_value)
        except EmulatorError as error:
            raise EmulatorError(f"{self.name}: {error}") from None

    def _check(
        self,
        arrays: list[mx.array],
        grid: Size,
        threadgroup: Size,
        shapes: list[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype],
    ) -> None:
        if len(arrays) != len(self.input_names):
            raise EmulatorError(f"{len(arrays)} inputs are given, {len(self.input_names)} are named")
        if not len(shapes) == len(dtypes) == len(self.output_names):
            raise EmulatorError(f"{len(shapes)} shapes and {len(dtypes)} dtypes for {len(self.output_names)} outputs")
        if len(grid) != 3 or len(threadgroup) != 3 or min(grid) < 1 or min(threadgroup) < 1:
            raise EmulatorError(f"grid {grid} and threadgroup {threadgroup} must be three positive numbers each")
        threads = threadgroup[0] * threadgroup[1] * threadgroup[2]
        if threads > MAX_THREADS:
            raise EmulatorError(f"a threadgroup has at most {MAX_THREADS} threads, not {threads}")

    def _arguments(self, arrays: list[mx.array]) -> list[Argument]:
        return [
            Argument(name, memory.METAL_TYPES[array.dtype], array.ndim)
            for name, array in zip(self.input_names, arrays, strict=True)
        ]

    def _runner(
        self, arrays: list[mx.array], dtypes: list[mx.Dtype], template: Template, grid: Size, threadgroup: Size
    ) -> Callable[[list[int]], None]:
        arguments = self._arguments(arrays)
        outputs = [(name, memory.METAL_TYPES[dtype]) for name, dtype in zip(self.output_names, dtypes, strict=True)]
        spaces = {
            name: "constant" if array.size < CONSTANT_BELOW else "device"
            for name, array in zip(self.input_names, arrays, strict=True)
            if array.ndim  # a single value is a reference and may be used like one
        }
        _lint(self.source, self.header, (*spaces.items(), *((name, "device") for name in self.output_names)))
        parameters = {name: _template_value(value) for name, value in template}
        text = translate(self.source, self.header, arguments, outputs, parameters)
        # ctypes looks a symbol up by name: the same object answers for the same text.
        library = build.loaded(build.compiled(self.name, text, self.order.contract))
        entry = ctypes.cast(library.entry, ctypes.c_void_p)

        def run(addresses: list[int]) -> None:
            message = ctypes.create_string_buffer(MESSAGE_BYTES)
            failed = build.machine().emu_run(
                entry,
                (ctypes.c_void_p * len(addresses))(*addresses),
                (ctypes.c_uint * 3)(*grid),
                (ctypes.c_uint * 3)(*threadgroup),
                ctypes.byref(native(self.order)),
                message,
                MESSAGE_BYTES,
            )
            if failed:
                raise EmulatorError(message.value.decode(errors="replace"))

        return run

    def _run(
        self,
        run: Callable[[list[int]], None],
        arrays: list[mx.array],
        shapes: list[tuple[int, ...]],
        dtypes: list[mx.Dtype],
        value: float | None,
    ) -> list[mx.array]:
        arguments = self._arguments(arrays)
        about = [self._about_shape(one, tuple(array.shape)) for one, array in zip(arguments, arrays, strict=True)]
        held: list[memory.Buffer] = []

        def attempt(poison: int) -> list[memory.Buffer]:
            outputs = [
                memory.wanted(name, dtype, shape, poison, value)
                for name, dtype, shape in zip(self.output_names, dtypes, shapes, strict=True)
            ]
            held.extend(outputs)
            listed: list[tuple[str, int]] = []
            for one, shapes_of in zip(inputs, about, strict=True):
                listed += [(one.name, one.address), *(("a shape", said.ctypes.data) for said in shapes_of)]
            listed += [(one.name, one.address) for one in outputs]
            try:
                run([*(address for _, address in listed), 0])
            except EmulatorError as error:
                raise EmulatorError(re.sub(r"buffer (\d+)", lambda at: _quoted(listed, at), str(error))) from None
            for buffer in (*inputs, *outputs):
                buffer.check_fence()
            return outputs

        try:
            inputs = [memory.given(name, array) for name, array in zip(self.input_names, arrays, strict=True)]
            held.extend(inputs)
            outputs = attempt(memory.POISONS[0])
            if value is None and any(one.suspects().any() for one in outputs):
                for one, other in zip(outputs, attempt(memory.POISONS[1]), strict=True):
                    _refuse_unwritten(one, other)
            return [one.array() for one in outputs]
        finally:
            for buffer in held:
                buffer.release()

    def _about_shape(self, argument: Argument, shape: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
        """What the body asks about an input. Inputs are contiguous here, whatever the launch says."""
        steps = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
        known: dict[str, np.ndarray[Any, Any]] = {
            "_shape": np.array(shape, np.int32),
            "_strides": np.array(steps, np.int64),
            "_ndim": np.array([len(shape)], np.int32),
        }
        return [known[word] for word in shape_words(self.source, argument)]


def _quoted(listed: Sequence[tuple[str, int]], at: re.Match[str]) -> str:
    return f"'{listed[int(at.group(1))][0]}'"


def _refuse_unwritten(one: memory.Buffer, other: memory.Buffer) -> None:
    unwritten = one.suspects() & other.suspects()
    if unwritten.any():
        first = tuple(int(i) for i in np.unravel_index(int(np.argmax(unwritten)), one.shape))
        raise EmulatorError(
            f"output '{one.name}' has {int(unwritten.sum())} elements that nobody wrote, the first at {first}"
        )


def _template_value(value: object) -> tuple[str, str]:
    """(kind, value) of a template argument, by MLX's rules: a bool, an int or a dtype."""
    if isinstance(value, bool):
        return "bool", "true" if value else "false"
    if isinstance(value, int):
        return "int", str(value)
    if isinstance(value, mx.Dtype):
        return "typename", memory.METAL_TYPES[value]
    raise EmulatorError(f"a template argument is a bool, an int or a dtype, not {type(value).__name__}")


@functools.cache
def _lint(source: str, header: str, spaces: tuple[tuple[str, str], ...]) -> None:
    found = linter.complaints(source, header, dict(spaces), ("T", "W", "S", "Out"))
    if found:
        raise EmulatorError("; ".join(found))


@functools.cache
def factory(order: Order) -> Callable[..., EmulatedKernel]:
    """What takes the place of `mx.fast.metal_kernel`; one object for each order, so that built kernels can be kept."""
    return functools.partial(EmulatedKernel, order)


@contextmanager
def emulated(order: Order = PLAIN) -> Iterator[None]:
    """Let `mx.fast.metal_kernel` give emulated kernels inside the block."""
    real = mx.fast.metal_kernel
    mx.fast.metal_kernel = factory(order)
    try:
        yield
    finally:
        mx.fast.metal_kernel = real
