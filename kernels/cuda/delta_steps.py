"""Launches of gated delta steps by a schedule (`delta_steps.cu`), each form compiled once and kept.

How warps are shared out among blocks follows from how many lanes a launch has, and decides no bit: a warp's numbers are
its own.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from tensorfold.kernels.cuda.compiler import Compiling, Progress, Source, compile_source
from tensorfold.kernels.cuda.driver import Device, Function

EACH, COLUMNS = 16, 4
"""Keys of a column that a thread holds, and its neighbouring columns, at most: both decide bits."""
LEAST, MOST = 16, 256
AHEAD = 3
"""Rows that are copied ahead of their step."""
_NAME = "delta_steps"
_MOST_WARPS = 8
_BESIDE = 1024
"""Bytes of shared memory that the driver takes of a block's share, and that spoil a fit by half."""


@dataclass(frozen=True, slots=True)
class Form:
    """States of `heads` heads of `keys` x `values` numbers, both powers of two; results are bf16, or float32 if `wide`.

    Each of `key_heads` heads of queries and keys serves as many neighbouring ones. Raises ValueError for what no kernel
    takes.
    """

    heads: int
    key_heads: int
    keys: int
    values: int
    wide: bool = False

    def __post_init__(self) -> None:
        for name, width in (("keys", self.keys), ("values", self.values)):
            if not LEAST <= width <= MOST or width & (width - 1):
                raise ValueError(f"{width} {name} of a head are no power of two from {LEAST} to {MOST}")
        if self.key_heads < 1 or self.heads % self.key_heads:
            raise ValueError(f"{self.heads} heads are not shared out evenly among {self.key_heads} of keys")

    @property
    def columns(self) -> int:
        """Columns of one thread: no more than threads share a column."""
        return min(COLUMNS, self.keys // EACH)

    @property
    def own(self) -> int:
        """Columns of one warp."""
        return 32 * EACH // self.keys * self.columns

    @property
    def slices(self) -> int:
        """Warps of a head."""
        return -(-self.values // self.own)

    @property
    def tile_bytes(self) -> int:
        """Shared memory of a head's state, and of the barrier that its copies meet at."""
        return self.keys // 8 * (8 * self.values + 4) * 4 + 16


@dataclass(frozen=True, slots=True)
class Shares:
    """How the warps of a form are shared out: `warps` of a block; with `tile` a block is a head.

    `alone`: no two blocks are to share a multiprocessor, since warps of both would take turns on one scheduler.
    """

    warps: int
    tile: bool = False
    alone: bool = False

    def source(self, form: Form, architecture: str) -> Source:
        """What is compiled for it."""
        macros = {"HEADS": form.heads, "KEY_HEADS": form.key_heads}
        macros |= {"KEYS": form.keys, "VALUES": form.values, "EACH": EACH, "COLUMNS": form.columns}
        macros |= {"AHEAD": AHEAD, "WARPS": self.warps, "TILE": int(self.tile), "WIDE": int(form.wide)}
        return Source.of(f"{_NAME}.cu", macros, architecture)

    def shared_bytes(self, form: Form, most: int, device: Device) -> int:
        """Shared memory of a block for schedules of up to `most` steps."""
        pieces = 2 * form.keys // 8 + min(form.own, form.values) // 8 + 2
        need = 16 * self.warps * (most + (AHEAD + 1) * pieces)
        if self.tile:
            need += form.tile_bytes
        return max(need, device.shared_bytes // 2 + _BESIDE) if self.alone else need


def shares(form: Form, programs: int, device: Device) -> Shares:
    """How a launch of so many lanes is shared out on a device."""
    warps = form.slices * form.heads
    for each in range(1, _MOST_WARPS + 1):
        if warps % each == 0 and warps // each * programs <= device.multiprocessors:
            return Shares(each, alone=True)
    # Two heads to a multiprocessor, so that one's copies hide the other's steps.
    if device.capability >= (9, 0) and form.slices <= _MOST_WARPS and 2 * form.tile_bytes <= device.shared_bytes:
        return Shares(form.slices, tile=True)
    return Shares(next(each for each in (4, 3, 2, 1) if warps % each == 0))


@dataclass(frozen=True, slots=True)
class Steps:
    """What a launch reads and writes, as addresses of tensors, and their counts.

    `state`, `mixed` and `factors` are copied 16 bytes at a time and lie at multiples of them; integers lie anywhere.

    `state` float32 [places, heads, keys, values]; `mixed` [lanes * ring, 2 * key_heads * keys + heads * values] and
    `factors` float32 [lanes * ring, heads, 8] as `conv.delta_inputs` leaves them; `schedule` int32 [lanes, most, 3],
    `counts` [lanes] and `places` [lanes, 2] int32; `out` [rows, heads, values]. `by_row`: `programs` are rows, whose
    lanes are int32 [rows] at `lanes`; otherwise they are lane slots. A schedule's first step takes the committed state,
    whatever its flags.
    """

    state: int
    mixed: int
    factors: int
    schedule: int
    counts: int
    places: int
    lanes: int
    out: int
    programs: int
    by_row: bool
    most: int
    ring: int


class DeltaKernels:
    """Kernels of one device: forms that were expected are compiled in threads, others when they are asked for."""

    def __init__(self, device: Device, folder: Path, progress: Progress) -> None:
        self.device = device
        self._folder, self._progress = folder, progress
        self._compiling = Compiling(folder, progress)
        self._code: dict[Source, bytes] = {}
        self._functions: dict[tuple[Source, int], Function] = {}

    def expect(self, form: Form, lanes: int) -> None:
        """Begin to compile a form for launches of up to so many lanes."""
        for source in {
            shares(form, count, self.device).source(form, self.device.architecture) for count in range(1, lanes + 1)
        }:
            self._compiling.ask(source)

    def make_expected(self) -> None:
        """Wait for what is compiling. Raises CompilerError and CompilerMissingError."""
        self._code.update(self._compiling.finish())

    def close(self) -> None:
        """Compile nothing further in threads."""
        self._compiling.close()

    def launch(self, form: Form, steps: Steps, stream: int, early: bool) -> None:
        """Queue the steps of lanes on a stream (an address); `early`: they may start before the launch ahead ends."""
        share = shares(form, steps.programs, self.device)
        addresses = (steps.state, steps.mixed, steps.factors, steps.schedule, steps.counts, steps.places, steps.lanes)
        arguments = [
            *map(ctypes.c_void_p, addresses),
            ctypes.c_int(int(steps.by_row)),
            ctypes.c_void_p(steps.out),
            ctypes.c_int(steps.most),
            ctypes.c_int(steps.ring),
        ]
        grid = (form.slices * form.heads // share.warps, steps.programs, 1)
        self._function(form, share, steps.most).launch(grid, 32 * share.warps, arguments, stream, 0, early)

    def _function(self, form: Form, share: Shares, most: int) -> Function:
        source, shared = share.source(form, self.device.architecture), share.shared_bytes(form, most, self.device)
        if shared > self.device.shared_bytes:
            raise ValueError(
                f"{most} steps of a lane need {shared} bytes of shared memory of {self.device.shared_bytes}"
            )
        if (source, shared) not in self._functions:
            code = self._code.get(source) or compile_source(source, self._folder, self._progress)
            self._functions[source, shared] = Function(code, _NAME, shared)
        return self._functions[source, shared]
