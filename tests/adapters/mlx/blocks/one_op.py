"""One op of a tiny checkpoint by itself: its block over some device's rows, and its float64 reference.

Rows are drawn, not made by layers before it, so a difference is the op's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.builders import build
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.adapters.mlx.row_context import RowContext, Segment
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.domain.families.binding import resolve
from tensorfold.domain.families.ops import HashedNgram
from tensorfold.domain.families.storage import parse_quantization
from tensorfold.domain.windows import Window, chain, tree
from tests.adapters.mlx.tiny_families import TinyFamily
from tests.reference.lane import Lane
from tests.reference.reference_ops import Slots, apply
from tests.reference.slot_reader import SlotReader

Rows = NDArray[np.float32]
DEVICES: dict[str, Callable[[], RowOps[Any]]] = {"cpu": CpuRows, "library": lambda: LibraryRows("float32")}
CAPACITY = 256


def weights_of(one: TinyFamily) -> WeightReader:
    """The reader of a tiny checkpoint's slots."""
    facts = FolderReader().facts(one.folder)
    bound = resolve(one.plan, facts.tensors, parse_quantization(facts.config))
    return WeightReader(bound, facts, lambda line: None, one.plan.tensors.probes)


@dataclass(frozen=True, slots=True)
class OneOp:
    """A block of a plan, the only one of its assembly, and the slots its reference reads.

    `lanes` are for a test to keep states that it forks again and again.
    """

    ops: RowOps[Any]
    op: Any
    block: Any
    slots: Slots
    width: int
    lanes: dict[int, Any] = field(default_factory=dict)

    @staticmethod
    def of(one: TinyFamily, ops: RowOps[Any], path: str, **changes: Any) -> OneOp:
        """The op at `layers.N.NAME` of a checkpoint, some of its constants changed."""
        _, layer, name = path.split(".")
        op: Any = next(sublayer.op for sublayer in one.plan.layers[int(layer)] if sublayer.name == name)
        op = replace(op, **changes)
        assembly = Assembly(ops, weights_of(one), one.plan.width, one.plan.streams)
        slots = Slots(SlotReader.of(one.folder, one.plan.tensors), path)
        width = one.plan.width * (one.plan.streams if isinstance(op, HashedNgram) else 1)
        return OneOp(ops, op, build(assembly, op, path), slots, width)

    def open(self) -> Any:
        """Empty state of a lane."""
        return self.block.state(CAPACITY)

    def rows(self, seed: int, count: int) -> Rows:
        """Drawn rows."""
        return np.random.default_rng(seed).standard_normal((count, self.width)).astype(np.float32)

    def run(self, state: Any, rows: Rows, window: Window) -> Rows:
        """What the block makes of a window's rows, which stay provisional."""
        return self.run_together([(state, rows, window)])[0]

    def run_together(self, parts: Sequence[tuple[Any, Rows, Window]]) -> list[Rows]:
        """The same over several lanes in one pass."""
        layouts = [lay_out(window, state.length) for state, _, window in parts]
        segments: list[Segment[Any]] = []
        at = 0
        for (state, rows, _), layout in zip(parts, layouts, strict=True):
            segments.append(Segment((state,), layout, at, at + len(rows)))
            at += len(rows)
        ids = np.concatenate([np.asarray(window.tokens, np.int64) for _, _, window in parts])
        positions = np.concatenate([layout.positions for layout in layouts])
        context: RowContext[Any] = RowContext(ids, positions, tuple(segments))
        device = self.ops.narrow(self.ops.float32(np.concatenate([rows for _, rows, _ in parts])))
        made = self.ops.host(self.block(device, context, device))
        return [made[segment.start : segment.stop] for segment in segments]

    def absorb(self, state: Any, rows: Rows, tokens: Sequence[int]) -> Rows:
        """One-row steps, all kept."""
        made = []
        for row, token in zip(rows, tokens, strict=True):
            made.append(self.run(state, row[None], chain(token)))
            state.keep((0,))
        return np.concatenate(made)

    def expected(self, rows: Rows, tokens: Sequence[int], parents: Sequence[int] | None = None) -> NDArray[np.float64]:
        """The reference's rows, each behind the one before it or behind its parent."""
        lane = Lane()
        made = []
        for index, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            parent = index - 1 if parents is None else parents[index]
            at = lane.at(lane.add(token, parent))
            given = row.astype(np.float64)
            if isinstance(self.op, HashedNgram):
                given = given.reshape(self.op.streams, -1)
            made.append(apply(self.op, self.slots, given, at, given).reshape(-1))
        return np.stack(made)


def some_tokens(seed: int, count: int) -> list[int]:
    """Drawn ids, every seventh or so the one that ends a segment in the tiny configs."""
    drawn = np.random.default_rng(seed).integers(3, 90, count)
    return [2 if token % 7 == 0 else int(token) for token in drawn]


def comb(tokens: Sequence[int]) -> tuple[Window, tuple[int, ...]]:
    """A tree in which every depth past the first has two rows, and the path through the first of each pair.

    The second of a pair follows the same row as the first, so every other path of the same length is a fault.
    """
    parents = [0 if depth == 0 else 2 * depth - 1 for depth in range((len(tokens) - 1) // 2) for _ in range(2)]
    return tree(tokens[0], list(tokens[1 : 1 + len(parents)]), parents), (0, *range(1, len(parents) + 1, 2))
