"""One op's block with random weights: built, run over windows, and held against one row at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.builders import build
from tensorfold.adapters.mlx.layouts import Layout, lay_out
from tensorfold.adapters.mlx.row_context import RowContext, Segment
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.weights import Matrix, Stack, Values
from tensorfold.domain.families.ops import Op
from tensorfold.domain.families.weights import op_weights
from tensorfold.domain.windows import Window, chain, tree

Floats = NDArray[np.float32]
PATH = "op"
FORK = tree(0, [0] * 8, [0, 0, 1, 1, 3, 3, 2, 7])
"""Rows 1 and 2 follow the first, 3 and 4 follow 1, 5 and 6 follow 3, 7 and 8 stand below 2."""


@dataclass(frozen=True, slots=True)
class HeldWeights:
    """Weights by slot path, as a reader of a checkpoint hands them out; `biases` are those beside a module."""

    values: Mapping[str, Floats]
    biases: Mapping[str, Floats] = field(default_factory=dict)

    def matrix(self, path: str) -> Matrix:
        values = self.values[path]
        return Matrix(Values(values, "F32"), (values.shape[0], values.shape[1]), self.biases.get(path))

    def stack(self, path: str) -> Stack:
        values = self.values[path]
        return Stack(Values(values, "F32"), (values.shape[0], values.shape[1], values.shape[2]), self.biases.get(path))

    def floats(self, path: str) -> Floats:
        return self.values[path]

    def bias(self, path: str) -> Floats | None:
        return self.biases.get(path)


class OneOp:
    """A block of `op` on rows of `width`, its weights, and lanes of its own."""

    def __init__(self, ops: RowOps[Any], op: Op, width: int, seed: int = 1, **planted: Floats) -> None:
        self.ops, self.width = ops, width
        self.weights = random_weights(op, width, seed, planted)
        reader: Any = self.weights
        self._assembly = Assembly(ops, reader, width)
        self.block = build(self._assembly, op, PATH)
        self.entries = [entry for _, entries in self._assembly.stateful for entry in entries]

    def exact(self, slot: str) -> NDArray[np.float64]:
        """A slot's values in float64."""
        return self.weights.values[f"{PATH}.{slot}"].astype(np.float64)

    def open(self) -> OpLane:
        """An empty lane."""
        return OpLane(tuple(block.state(4096) for block, _ in self._assembly.stateful))

    def run(self, *parts: tuple[OpLane, Floats, Window], residual: Floats | None = None) -> Floats:
        """Outputs of one pass over several lanes' windows, their rows one below another."""
        segments: list[Segment[Any]] = []
        layouts: list[Layout] = []
        at = 0
        for lane, rows, window in parts:
            layouts.append(lay_out(window, lane.length))
            segments.append(Segment(lane.states, layouts[-1], at, at + len(rows)))
            at += len(rows)
        context = _context(segments, layouts, at)
        rows = self.ops.narrow(self.ops.float32(np.concatenate([rows for _, rows, _ in parts])))
        before = rows if residual is None else self.ops.narrow(self.ops.float32(residual))
        return self.ops.host(self.block(rows, context, before))

    def steps(self, lane: OpLane, rows: Floats) -> Floats:
        """Outputs of rows one by one, all kept."""
        made = []
        for row in rows:
            made.append(self.run((lane, row[None], chain(0))))
            lane.keep((0,))
        return np.concatenate(made)


@dataclass(slots=True)
class OpLane:
    """One lane's state of the op, if it has any."""

    states: tuple[Any, ...]
    length: int = 0

    def keep(self, path: Sequence[int]) -> None:
        for state in self.states:
            state.keep(tuple(path))
        self.length += len(path)

    def discard(self) -> None:
        for state in self.states:
            state.discard()

    def fork(self) -> OpLane:
        return OpLane(tuple(state.fork() for state in self.states), self.length)

    def export(self) -> list[tuple[bytes, ...]]:
        return [state.export() for state in self.states]


def arithmetics() -> dict[str, RowOps[Any]]:
    """Both forms in float32."""
    return {"rows": CpuRows(), "library": LibraryRows("float32")}


def random_weights(op: Op, width: int, seed: int, planted: Mapping[str, Floats]) -> HeldWeights:
    """Matrices that keep a row's size, vectors around one; `planted` slots as given."""
    generator = np.random.default_rng(seed)
    values, biases = {}, {}
    for name, weight in op_weights(op, width):
        scale, mean = (weight.shape[-1] ** -0.5, 0.0) if len(weight.shape) > 1 else (0.3, 0.5)
        drawn = generator.standard_normal(weight.shape) * scale + mean
        values[f"{PATH}.{name}"] = planted.get(name, drawn.astype(np.float32))
        if weight.bias:
            shape = weight.bias_shape(weight.shape)
            biases[f"{PATH}.{name}"] = generator.standard_normal(shape).astype(np.float32)
    return HeldWeights(values, biases)


def rows_of(seed: int, count: int, width: int) -> Floats:
    """Random rows."""
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def assert_windows_keep_bits(one: OneOp, past: int = 5) -> None:
    """Rows of chains of 1 to 17 rows, in any company, and state after each part of them is kept, as one by one."""
    rows = rows_of(7, past + 17, one.width)
    serial = one.open()
    wanted = one.steps(serial, rows[:past])
    states = [serial.fork()]
    for row in rows[past:]:
        wanted = np.concatenate([wanted, one.steps(serial, row[None])])
        states.append(serial.fork())
    for count in (*range(1, 10), 15, 16, 17):
        lane, other = states[0].fork(), states[3].fork()
        window = chain(0, [0] * (count - 1))
        made = one.run((other, rows[:2], chain(0, [0])), (lane, rows[past : past + count], window))
        assert np.array_equal(made[2:], wanted[past : past + count]), count
        for kept in {0, 1, count // 2, count}:
            after = states[0].fork()
            one.run((after, rows[past : past + count], window))
            after.keep(range(kept))
            assert after.export() == states[kept].export(), (count, kept)
        lane.discard()
        assert lane.export() == states[0].export()


def assert_trees_keep_bits(one: OneOp, past: int = 5) -> None:
    """Every row of a tree, and state after each way down it is kept, as its path one by one."""
    rows = rows_of(8, past + len(FORK), one.width)
    lane = one.open()
    one.steps(lane, rows[:past])
    made = one.run((lane.fork(), rows[past:], FORK))
    for row in range(len(FORK)):
        path = FORK.path_to(row)
        serial = lane.fork()
        assert np.array_equal(one.steps(serial, rows[past:][list(path)])[-1], made[row]), row
        kept = lane.fork()
        one.run((kept, rows[past:], FORK))
        kept.keep(path)
        assert kept.export() == serial.export(), row
        follow = rows_of(9, 2, one.width)
        assert np.array_equal(one.steps(kept, follow), one.steps(serial, follow))


def assert_state_travels(one: OneOp, past: int = 5) -> None:
    """State exported and loaded, or copied, goes on as the one it came from, which goes on undisturbed."""
    rows = rows_of(10, past + 6, one.width)
    lane = one.open()
    one.steps(lane, rows[:past])
    parts = lane.export()
    assert len(one.entries) == sum(map(len, parts))
    loaded = one.open()
    for state, data in zip(loaded.states, parts, strict=True):
        state.load(data, past)
    loaded.length = past
    twin = lane.fork()
    astray = one.steps(twin.fork(), rows_of(11, 6, one.width))
    wanted = one.steps(lane, rows[past:])
    assert not np.array_equal(astray, wanted)
    assert np.array_equal(one.steps(twin, rows[past:]), wanted)
    assert np.array_equal(one.steps(loaded, rows[past:]), wanted)
    assert lane.export() == twin.export() == loaded.export()


def _context(segments: Sequence[Segment[Any]], layouts: Sequence[Layout], count: int) -> RowContext[Any]:
    positions = np.concatenate([layout.positions for layout in layouts])
    return RowContext(np.zeros(count, np.int64), positions, tuple(segments))
