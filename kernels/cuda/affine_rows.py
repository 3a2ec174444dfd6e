"""Launches of the row kernels, each prepared once for all matrices of a shape.

Which of the three kernels runs, and how it is tiled, may follow the row count and the device: none of it decides bits.
Knows addresses, not tensors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tensorfold.kernels.cuda.compiler import Compiling, Progress, Source, compile_source
from tensorfold.kernels.cuda.driver import Device, Function
from tensorfold.kernels.cuda.row_tilings import (
    MANY,
    Cut,
    Matrix,
    Tiling,
    cut,
    even,
    expert_rows,
    few_rows,
    matrix_macros,
    middle_rows,
    row_bytes,
    shared_bytes,
    tiling,
)
from tensorfold.kernels.cuda.staged_rows import STAGED_PART, STAGED_ROWS, StagedTiling, staged_bytes, staged_tiling
from tensorfold.kernels.cuda.wide_rows import ARCHITECTURE, WideTiling, block_groups, wide_bytes, wide_tiling

MOST_ROWS, MOST_PAIRS = 128, 256
Launch = Callable[[int, int, int, int, bool], None]
ExpertLaunch = Callable[[int, int, int, int, int, int, bool], None]


def _in_turn(matrix: Matrix, parts: Sequence[tuple[int, Launch]], wide: bool) -> Launch:
    """One launch behind another, each of so many further rows."""

    def launch(weights: int, x: int, y: int, stream: int, early: bool) -> None:
        for rows, part in parts:
            part(weights, x, y, stream, early)
            x, y = x + rows * matrix.inputs * 2, y + rows * matrix.results * (4 if wide else 2)

    return launch


class RowKernels:
    """Row kernels of one device: those that were expected are compiled in threads, others when they are asked for.

    A launch is made once for all matrices of a shape.
    """

    def __init__(self, device: Device, folder: Path, progress: Progress) -> None:
        self.device = device
        self._folder, self._progress = folder, progress
        self._compiling = Compiling(folder, progress)
        self._code: dict[Source, bytes] = {}
        self._functions: dict[tuple[Source, int], Function] = {}
        self._rows: dict[tuple[Matrix, int, bool], Launch] = {}
        self._experts: dict[tuple[Matrix, int, int, bool], ExpertLaunch] = {}
        self._expected: dict[tuple[Matrix, int, bool] | tuple[Matrix, int, int, bool], None] = {}

    def expect_rows(self, matrix: Matrix, rows: int, wide: bool = False) -> None:
        """Begin to compile what `rows` will launch; nothing is loaded yet."""
        if (matrix, rows, wide) not in self._expected:
            self._expected[matrix, rows, wide] = None
            for count in dict.fromkeys(self._together(matrix, rows)):
                self._compiling.ask(self.rows_source(matrix, count, wide))

    def expect_experts(self, matrix: Matrix, rows: int, pairs: int, wide: bool = False) -> None:
        """Begin to compile what `experts` will launch. Raises ValueError, expecting nothing, where it cannot."""
        if (matrix, rows, pairs, wide) not in self._expected:
            source = self.experts_source(matrix, rows, pairs, wide)
            self._expected[matrix, rows, pairs, wide] = None
            self._compiling.ask(source)

    def make_expected(self) -> None:
        """Wait for what is compiling and make every launch that was expected, so that later rounds find all of them.

        Raises CompilerError, CompilerMissingError and DriverError.
        """
        self._code.update(self._compiling.finish())
        for each in self._expected:
            if len(each) == 3:
                self.rows(*each)
            else:
                self.experts(*each)
        self._code.clear()

    def close(self) -> None:
        """Compile nothing further in threads."""
        self._compiling.close()

    def rows_source(self, matrix: Matrix, rows: int, wide: bool = False) -> Source:
        """What `rows` compiles for as many rows as a block holds together."""
        chosen = self.chosen(matrix, rows)
        if isinstance(chosen, WideTiling):
            return Source.of("wide_rows.cu", chosen.macros | matrix_macros(matrix, wide), ARCHITECTURE)
        if isinstance(chosen, StagedTiling):
            return Source.of("staged_rows.cu", chosen.macros | matrix_macros(matrix, wide), ARCHITECTURE)
        return self.source(matrix, *chosen, wide)

    def experts_source(self, matrix: Matrix, rows: int, pairs: int, wide: bool = False) -> Source:
        """What `experts` compiles."""
        way = self.expert_cut(matrix, max(1, pairs // rows))
        return self.source(matrix, way, self.expert_tiling(matrix, way, rows, pairs), wide, True)

    def source(self, matrix: Matrix, cut: Cut, tiling: Tiling, wide: bool, experts: bool = False) -> Source:
        """What is compiled for this."""
        macros = matrix_macros(matrix, wide) | {"EXPERTS": int(experts)}
        macros |= {"MT": tiling.row_tiles, "RT": tiling.output_tiles, "WN": tiling.warps}
        macros |= {"WK": cut.columns, "S": cut.blocks, "CG": tiling.copy, "SLOTS": tiling.slots}
        macros |= {"MEETINGS": tiling.meetings, "ADDERS": tiling.adders, "KEPT": tiling.kept}
        macros |= {"EARLY": tiling.early, "BEHIND": int(tiling.behind)}
        macros |= {"PART": -(-matrix.groups // cut.parts) if tiling.kept else 0}
        return Source.of("affine_rows.cu", macros, self.device.architecture)

    def rows(self, matrix: Matrix, rows: int, wide: bool = False) -> Launch:
        """The launch of `rows` rows of `matrix` as measured best; see `prepare`.

        Where no block has room for x of them all, they are launched some at a time. Raises ValueError where it has none
        for one.
        """
        if (matrix, rows, wide) not in self._rows:
            counts = self._together(matrix, rows)
            if len(counts) > 1:
                made = _in_turn(matrix, [(count, self.rows(matrix, count, wide)) for count in counts], wide)
            elif isinstance(chosen := self.chosen(matrix, rows), WideTiling):
                made = self.prepare_wide(matrix, chosen, rows, wide)
            elif isinstance(chosen, StagedTiling):
                made = self.prepare_staged(matrix, chosen, rows, wide)
            else:
                made = self.prepare(matrix, *chosen, rows, wide)
            self._rows[matrix, rows, wide] = made
        return self._rows[matrix, rows, wide]

    def _together(self, matrix: Matrix, rows: int) -> list[int]:
        """How many rows are launched together: all, or as many as fit at a time and the rest of them."""
        for most in range(rows, 1, -1):
            with suppress(ValueError):
                self.chosen(matrix, most)
                return [*[most] * (rows // most), *[rows % most] * (rows % most > 0)]
        return [1] * rows

    def chosen(self, matrix: Matrix, rows: int) -> tuple[Cut, Tiling] | WideTiling | StagedTiling:
        """The form of as many rows as a block holds together. Raises ValueError where it has room for fewer."""
        way, most = cut(matrix, self.device.capability), self.device.shared_bytes
        if self.device.capability != (9, 0) or matrix.bits != 4:
            return way, tiling(matrix, way, rows, most)
        if rows >= MANY:
            return self._many(matrix, way, rows) or (way, tiling(matrix, way, rows, most))
        if rows > 8:
            form = middle_rows(matrix, way.parts)
        else:
            form = few_rows(matrix, way.parts, rows, self.device.multiprocessors)
        if form is None or shared_bytes(matrix, *form, rows) > most - 1024:
            form = way, tiling(matrix, way, rows, most)
        return form[0], replace(form[1], early=1, behind=rows > 8)

    def _many(self, matrix: Matrix, way: Cut, rows: int) -> StagedTiling | WideTiling | None:
        most = self.device.shared_bytes
        if rows > 32 and matrix.groups >= STAGED_PART * way.parts:
            staged = staged_tiling(matrix.outputs, matrix.groups, way.parts, self.device.multiprocessors, most)
            if staged is not None:
                return staged
        return wide_tiling(matrix.outputs, matrix.groups, way.parts, rows, most)

    def prepare(self, matrix: Matrix, cut: Cut, tiling: Tiling, rows: int, wide: bool = False) -> Launch:
        """A launch of `rows` rows: called with the addresses of matrix, x and y, a stream, and whether to start early.

        x is bf16 [rows, K], y bf16 (float32 if `wide`) [rows, results], both without gaps and 16-byte aligned.
        """
        if tiling.outputs % (16 * cut.blocks):
            raise ValueError(f"{tiling.outputs} outputs are not shared out evenly among {cut.blocks} blocks")
        function = self._function(matrix, cut, tiling, shared_bytes(matrix, cut, tiling, rows), wide, False)
        threads = 32 * (tiling.warps * cut.columns + tiling.adders)
        row_blocks = -(-rows // (8 * tiling.row_tiles))
        tiles = -(-matrix.outputs // tiling.outputs)
        at_once = self._at_once(function, cut, threads)
        clusters = max(1, min(at_once // row_blocks, tiles)) * row_blocks
        grid = (clusters * cut.blocks, 1, 1)
        x_bytes = row_bytes(matrix, cut)
        numbers = (rows, matrix.outputs, matrix.groups, matrix.inputs, matrix.results, x_bytes, row_blocks)
        constants = tuple(map(ctypes.c_int, numbers))
        blocks = cut.blocks if self.device.capability >= (9, 0) else 0

        def launch(weights: int, x: int, y: int, stream: int, early: bool) -> None:
            addresses = (ctypes.c_void_p(weights), ctypes.c_void_p(x), ctypes.c_void_p(y))
            nobody = (ctypes.c_void_p(0), ctypes.c_void_p(0))
            function.launch(grid, threads, (*addresses, *constants, *nobody), stream, blocks, early)

        return launch

    def prepare_wide(self, matrix: Matrix, tiling: WideTiling, rows: int, wide: bool = False) -> Launch:
        """The same by the warpgroup kernel, which makes the same bits where its parts of K are the same."""
        need = max(wide_bytes(matrix.groups, matrix.bits, tiling), self._half)
        source = Source.of("wide_rows.cu", tiling.macros | matrix_macros(matrix, wide), ARCHITECTURE)
        function = self._loaded(source, "wide_rows", need)
        row_blocks = -(-rows // (8 * tiling.row_tiles))
        at_once = self._at_once(function, Cut(tiling.blocks, tiling.columns), tiling.threads)
        clusters = max(1, min(at_once // row_blocks, -(-matrix.outputs // 64))) * row_blocks
        held = block_groups(matrix.groups, tiling)
        numbers = (rows, matrix.outputs, matrix.groups, matrix.inputs, matrix.results, held, row_blocks)
        constants = tuple(map(ctypes.c_int, (*numbers, tiling.copy, tiling.slots)))
        grid = (clusters * tiling.blocks, 1, 1)

        def launch(weights: int, x: int, y: int, stream: int, early: bool) -> None:
            addresses = (ctypes.c_void_p(weights), ctypes.c_void_p(x), ctypes.c_void_p(y))
            function.launch(grid, tiling.threads, (*addresses, *constants), stream, tiling.blocks, early)

        return launch

    def prepare_staged(self, matrix: Matrix, tiling: StagedTiling, rows: int, wide: bool = False) -> Launch:
        """The same by the kernel that decodes into shared memory, which makes the same bits, too.

        Raises ValueError where it has no room, or a block no part of K.
        """
        need = max(staged_bytes(matrix.bits, tiling), self._half)
        if need > self.device.shared_bytes or matrix.groups < tiling.blocks:
            raise ValueError(f"{matrix} does not fit {tiling}")
        source = Source.of("staged_rows.cu", tiling.macros | matrix_macros(matrix, wide), ARCHITECTURE)
        function = self._loaded(source, "staged_rows", need)
        row_blocks, tiles = -(-rows // STAGED_ROWS), -(-matrix.outputs // (16 * tiling.sixteens))
        numbers = (rows, matrix.outputs, matrix.groups, matrix.inputs, matrix.results, row_blocks)
        constants = tuple(map(ctypes.c_int, numbers))
        grid = (tiles * row_blocks * tiling.blocks, 1, 1)

        def launch(weights: int, x: int, y: int, stream: int, early: bool) -> None:
            addresses = (ctypes.c_void_p(weights), ctypes.c_void_p(x), ctypes.c_void_p(y))
            function.launch(grid, tiling.threads, (*addresses, *constants), stream, tiling.blocks, early)

        return launch

    def experts(self, matrix: Matrix, rows: int, pairs: int, wide: bool = False) -> ExpertLaunch:
        """A launch of up to `pairs` products of `rows` rows of x with matrices of a stack, each of them as `matrix`.

        Called with the addresses of the stack (packed matrices one after another), x, y, items and members, a stream
        and whether to start early. `items` int32: a count, then for each an expert, its first member and its 1 to 8
        members, which lie behind those of the item before. `members` int32 [256, 2]: a row of x and a row of y. Both
        are read when the kernel before has ended.
        """
        if (matrix, rows, pairs, wide) not in self._experts:
            self._experts[matrix, rows, pairs, wide] = self._prepare_experts(matrix, rows, pairs, wide)
        return self._experts[matrix, rows, pairs, wide]

    def _prepare_experts(self, matrix: Matrix, rows: int, pairs: int, wide: bool) -> ExpertLaunch:
        if pairs > MOST_PAIRS:
            raise ValueError(f"{pairs} pairs of a row and an expert are more than a launch takes: {MOST_PAIRS}")
        way = self.expert_cut(matrix, max(1, pairs // rows))
        tiling = self.expert_tiling(matrix, way, rows, pairs)
        clusters = self._expert_clusters(way)
        function, room = self._expert_function(matrix, way, tiling, (rows, pairs, clusters), wide)
        threads = 32 * (tiling.warps * way.columns + tiling.adders)
        at_once = self._at_once(function, way, threads)
        if at_once < clusters:  # each has more tiles than was counted on, and more rows
            function, room = self._expert_function(matrix, way, tiling, (rows, pairs, at_once), wide)
        clusters = min(at_once, pairs * -(-matrix.outputs // tiling.outputs))
        all_rows = int(room == rows)
        numbers = (room, matrix.outputs, matrix.groups, matrix.inputs, matrix.outputs, row_bytes(matrix, way), all_rows)
        constants = tuple(map(ctypes.c_int, numbers))
        blocks = way.blocks if self.device.capability >= (9, 0) else 0

        def launch(stack: int, x: int, y: int, items: int, members: int, stream: int, early: bool) -> None:
            addresses = (ctypes.c_void_p(stack), ctypes.c_void_p(x), ctypes.c_void_p(y))
            lists = (ctypes.c_void_p(items), ctypes.c_void_p(members))
            grid = (clusters * way.blocks, 1, 1)
            function.launch(grid, threads, (*addresses, *constants, *lists), stream, blocks, early)

        return launch

    def _expert_function(
        self, matrix: Matrix, way: Cut, tiling: Tiling, counts: tuple[int, int, int], wide: bool
    ) -> tuple[Function, int]:
        """The kernel with room for rows of x, and how many these are; `counts`: a launch's rows, pairs and clusters."""
        room = expert_rows(matrix, tiling, *counts)
        need = shared_bytes(matrix, way, tiling, room, experts=True)
        return self._function(matrix, way, tiling, need, wide, True), room

    def expert_cut(self, matrix: Matrix, each: int) -> Cut:
        """How K is cut where a row of x has `each` experts: in as few parts as leave long copies room in a full launch.

        `each` is a model's own number, and 1 where x has a row for every pair.
        """
        if self.device.capability < (9, 0):
            return cut(matrix, self.device.capability)
        for shortest in (5, 1):
            for way in (Cut(1, 2), Cut(2, 1), Cut(2, 2), Cut(4, 1), Cut(4, 2), Cut(8, 1)):
                try:
                    copy = self.expert_tiling(matrix, way, MOST_PAIRS // each, MOST_PAIRS).copy
                except ValueError:
                    continue
                if copy >= min(shortest, -(-matrix.groups // way.parts)):
                    return way
        return Cut(8, 1)

    def expert_tiling(self, matrix: Matrix, way: Cut, rows: int, pairs: int) -> Tiling:
        """Copies that fit beside the rows of x that a block keeps, whole shares of a part first; `way`: the cut."""
        part = -(-matrix.groups // way.parts)
        whole = [copy for copy in range(min(part, 8), 3, -1) if part % copy == 0]
        copies = [*whole, *(even(part, longest) for longest in (8, 5, 3, 2, 1))]
        for copy, slots in ((copy, slots) for copy in copies for slots in (3, 2)):
            made = Tiling(1, 1, max(1, 8 // way.columns), copy, slots)
            room = expert_rows(matrix, made, rows, pairs, self._expert_clusters(way))
            need = shared_bytes(matrix, way, made, room, experts=True)
            if made.outputs % (16 * way.blocks) == 0 and need <= self.device.shared_bytes - 6 * 1024:
                return made
        raise ValueError(f"{rows} rows of {matrix.inputs} numbers do not fit a block's shared memory")

    def _expert_clusters(self, way: Cut) -> int:
        """Clusters that are counted on. Multiprocessors come in pairs; not all of them have more neighbours."""
        whole = self.device.multiprocessors // way.blocks
        return whole if way.blocks <= 2 else max(1, whole * 3 // 4)

    def _function(self, matrix: Matrix, cut: Cut, tiling: Tiling, need: int, wide: bool, experts: bool) -> Function:
        shared = max(need, self._half)
        if shared > self.device.shared_bytes:
            raise ValueError(f"{matrix} needs {shared} bytes of shared memory of {self.device.shared_bytes}")
        return self._loaded(self.source(matrix, cut, tiling, wide, experts), "affine_rows", shared)

    @property
    def _half(self) -> int:
        # Half the memory and a little more: one block a multiprocessor, also beside the kernel that starts early. Two
        # on one would take turns while others wait.
        return self.device.shared_bytes // 2 + 1024

    def _loaded(self, source: Source, name: str, shared: int) -> Function:
        key = (source, shared)
        if key not in self._functions:
            code = self._code.get(source) or compile_source(source, self._folder, self._progress)
            self._functions[key] = Function(code, name, shared)
        return self._functions[key]

    def _at_once(self, function: Function, cut: Cut, threads: int) -> int:
        at_once = self.device.multiprocessors // cut.blocks
        if self.device.capability < (9, 0):
            return at_once
        return min(at_once, function.clusters_at_once(threads, cut.blocks, self.device.shared_bytes * 7 // 8))
