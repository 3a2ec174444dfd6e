"""What the load check runs: one-row references, and the same rows in windows, trees, company and slices.

Every comparison is of bits. Probes work on lanes of their own and leave none behind. Ids are fixed formulas, so that
two runs of one engine probe the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.forward import Forward, LanePart, LaneState
from tensorfold.adapters.mlx.images import lane_entries, load_parts
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.domain.families.state import StateEntry
from tensorfold.domain.windows import Window, chain, tree

A = TypeVar("A")
Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reference(Generic[A]):
    """A lane and tokens, with the logits that one-row steps over them gave."""

    lane: LaneState[A]
    tokens: tuple[int, ...]
    logits: Logits


class RowProbes(Generic[A]):
    """Runs probes over a decoder; `capacity` is the context lanes may fill."""

    def __init__(self, forward: Forward[A], capacity: int) -> None:
        self._forward, self._capacity = forward, capacity
        self._vocabulary = forward.decoder.plan.head.vocabulary

    # -- lanes and tokens ----------------------------------------------------------------------------------------

    def prompted(self, length: int) -> LaneState[A]:
        """A lane that absorbed a prompt of `length` fixed ids."""
        lane = self._forward.open(self._capacity)
        self._forward.absorb(lane, self.prompt(length))
        return lane

    def prompt(self, length: int) -> NDArray[np.int64]:
        """Fixed ids, spread over the vocabulary."""
        at = np.arange(length, dtype=np.int64)
        return ((37 * at + 11) % 50_000 + 1_000) % self._vocabulary

    def filled(self, length: int) -> LaneState[A]:
        """A lane of `length` tokens whose state is random: as good as a prompt for probing rows."""
        lane = self._forward.open(self._capacity)
        generator = np.random.default_rng(length)
        parts = [self._noise(generator, entry, length) for entry in lane_entries(self._forward)]
        load_parts(lane, self._forward, parts, length)
        return lane

    def _noise(self, generator: np.random.Generator, entry: StateEntry, length: int) -> bytes:
        held = min(length, entry.window) if entry.window else length
        shape = (held // entry.per, *entry.shape) if entry.per else entry.shape
        if entry.kind == "tokens":
            return generator.integers(0, self._vocabulary, shape, np.int64).tobytes()
        return _noise(generator, shape, entry.dtype)

    def steady(self, count: int) -> tuple[int, ...]:
        """Window tokens by a fixed step."""
        return tuple((3_001 + 17 * at) % self._vocabulary for at in range(count))

    def scattered(self, count: int, salt: int = 0) -> tuple[int, ...]:
        """Window tokens at random."""
        return tuple(np.random.default_rng(7 + salt).integers(0, self._vocabulary, count).tolist())

    # -- one row at a time ---------------------------------------------------------------------------------------

    def reference(self, lane: LaneState[A], tokens: Sequence[int]) -> Reference[A]:
        """One-row steps over `tokens` on a copy of a lane."""
        own = lane.fork()
        rows = [self._step(own, token) for token in tokens]
        return Reference(lane, tuple(tokens), np.concatenate(rows))

    def tree_reference(self, lane: LaneState[A], window: Window) -> Reference[A]:
        """One-row steps along every path of a tree."""
        after: list[LaneState[A]] = []
        rows = []
        for token, parent in zip(window.tokens, window.parents, strict=True):
            own = (lane if parent < 0 else after[parent]).fork()
            rows.append(self._step(own, token))
            after.append(own)
        return Reference(lane, window.tokens, np.concatenate(rows))

    def _step(self, lane: LaneState[A], token: int) -> Logits:
        row = self._forward.logits(lane, chain(token))
        lane.keep((0,))
        return row

    # -- comparisons ---------------------------------------------------------------------------------------------

    def window_equal(self, reference: Reference[A], window: Window) -> bool:
        """Whether a window over the reference's first tokens has its bits."""
        made = self._forward.logits(reference.lane, window)
        reference.lane.discard()
        return same_bits(made, reference.logits[: len(window)])

    def widths_equal(self, reference: Reference[A], widths: Iterable[int]) -> int | None:
        """The first width whose chain differs from one-row steps, None when all are equal."""
        return next((w for w in widths if not self.window_equal(reference, chain_of(reference.tokens[:w]))), None)

    def kept_equal(self, lane: LaneState[A], tokens: Sequence[int]) -> bool:
        """Whether keeping part of a window leaves the state that one-row steps leave."""
        kept = max(1, len(tokens) - 2)
        own, serial = lane.fork(), lane.fork()
        self._forward.logits(own, chain_of(tokens))
        own.keep(tuple(range(kept)))
        for token in tokens[:kept]:
            self._step(serial, token)
        return same_state(own, serial)

    def shared_equal(self, references: Sequence[Reference[A]], windows: Sequence[Window]) -> bool:
        """Whether windows over their references' first tokens, in one launch on lanes of their own, have their bits."""
        parts = []
        for reference, window in zip(references, windows, strict=True):
            lane = reference.lane.fork()
            parts.append(LanePart(lane, window.tokens, lay_out(window, lane.length)))
        made = self._forward.decoder.host(self._forward.launch(parts, range(sum(map(len, windows)))))
        wanted = [one.logits[: len(window)] for one, window in zip(references, windows, strict=True)]
        return same_bits(made, np.concatenate(wanted))

    def absorbed(self, ids: NDArray[np.int64], rows: int) -> LaneState[A]:
        """A fresh lane that absorbed ids in passes of `rows` rows, 0 for all at once."""
        lane = self._forward.open(self._capacity)
        self._forward.absorb(lane, ids, rows)
        return lane


def chain_of(tokens: Sequence[int]) -> Window:
    """A chain whose first token is the pending one."""
    return chain(tokens[0], tokens[1:])


def tree_forms(tokens: Sequence[int]) -> tuple[Window, ...]:
    """Two trees over the same tokens: a bushy one, and a spine beside a second deep branch, with dead ends that stand
    now before and now behind the spine's next row. Cut to its first rows each is a narrower tree of its kind.
    """
    bushy = [(row - 1) // 2 for row in range(1, len(tokens))]
    mixed: list[int] = []
    spine, branch = 0, 0
    for row in range(1, len(tokens)):
        kind = row % 5
        mixed.append(branch if kind == 2 else spine)
        if kind == 2:
            branch = row
        elif kind in (0, 3):
            spine = row
    return tuple(tree(tokens[0], tokens[1:], parents) for parents in (bushy, mixed))


def same_bits(left: Logits, right: Logits) -> bool:
    """Bit equality, so that NaN equals itself and the zeros differ."""
    return left.shape == right.shape and np.array_equal(left.view(np.uint32), right.view(np.uint32))


def same_state(left: LaneState[A], right: LaneState[A]) -> bool:
    """Whether two lanes hold the same bits."""
    pairs = zip(left.layers, right.layers, strict=True)
    return left.length == right.length and all(a.export() == b.export() for a, b in pairs)


def _noise(generator: np.random.Generator, shape: tuple[int, ...], dtype: str) -> bytes:
    values = generator.standard_normal(shape, np.float32)
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return values.astype(np.float16 if dtype == "float16" else np.float32).tobytes()
