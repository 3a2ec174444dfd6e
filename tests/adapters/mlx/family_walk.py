"""A random walk over one family's forward: windows of every form, kept to every length, held against one-row steps.

After every keep both the logits seen and the state left must have the bits that serial steps give.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorfold.adapters.mlx.forward import Forward, LanePart, LaneState
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.domain.windows import Window, chain, tree


@dataclass(slots=True)
class Walked:
    """What a walk compared: tokens, and the first difference in words, empty when there was none."""

    tokens: int = 0
    kept_lengths: set[int] | None = None
    difference: str = ""


class FamilyWalk:
    """Walks `forward` from prompts of `vocabulary` ids, windows at most `widest` rows."""

    def __init__(self, forward: Forward[Any], vocabulary: int, widest: int, seed: int) -> None:
        self._forward, self._vocabulary, self._widest = forward, vocabulary, widest
        self._random = random.Random(seed)

    def run(self, tokens: int, capacity: int = 96) -> Walked:
        """Walk until `tokens` tokens were compared or something differed."""
        walked = Walked(kept_lengths=set())
        while walked.tokens < tokens and not walked.difference:
            self._lanes(walked, capacity)
        return walked

    def _lanes(self, walked: Walked, capacity: int) -> None:
        """Two lanes side by side, each beside a lane that takes the same tokens one by one."""
        prompts = [self._ids(self._random.randrange(1, 24)) for _ in range(2)]
        lanes = [self._prompted(prompt, capacity, self._random.choice((0, 1, 5))) for prompt in prompts]
        serial = [self._prompted(prompt, capacity, 1) for prompt in prompts]
        if self._differs(lanes, serial, walked, "prompt"):
            return
        while min(capacity - lane.length for lane in lanes) > self._widest and not walked.difference:
            alone = self._random.random() < 0.5
            chosen = [self._random.randrange(2)] if alone else [0, 1]
            self._round([lanes[i] for i in chosen], [serial[i] for i in chosen], walked)

    def _round(self, lanes: list[LaneState[Any]], serial: list[LaneState[Any]], walked: Walked) -> None:
        windows = [self._window() for _ in lanes]
        if self._random.random() < 0.2:
            self._launch(lanes, windows)
            for lane in lanes:
                lane.discard()
        made = self._launch(lanes, windows)
        at = 0
        for lane, other, window in zip(lanes, serial, windows, strict=True):
            path = self._path(window)
            rows = made[at : at + len(window)]
            at += len(window)
            lane.keep(path)
            for row in path:
                step = self._forward.logits(other, chain(window.tokens[row]))
                other.keep((0,))
                walked.tokens += 1
                if not np.array_equal(step[0].view(np.uint32), rows[row].view(np.uint32)):
                    walked.difference = walked.difference or f"row {row} of {window} at {lane.length - len(path)}"
            assert walked.kept_lengths is not None
            walked.kept_lengths.add(len(path))
        self._differs(lanes, serial, walked, str(windows))

    def _differs(self, lanes: list[LaneState[Any]], serial: list[LaneState[Any]], walked: Walked, after: str) -> bool:
        for lane, other in zip(lanes, serial, strict=True):
            for place, (left, right) in enumerate(zip(lane.layers, other.layers, strict=True)):
                if left.export() != right.export():
                    walked.difference = walked.difference or f"state {place} at {lane.length} after {after}"
        return bool(walked.difference)

    def _launch(self, lanes: list[LaneState[Any]], windows: list[Window]) -> Any:
        parts = [
            LanePart(lane, window.tokens, lay_out(window, lane.length))
            for lane, window in zip(lanes, windows, strict=True)
        ]
        rows = sum(map(len, windows))
        return self._forward.decoder.host(self._forward.launch(parts, range(rows)))

    def _prompted(self, ids: list[int], capacity: int, rows: int) -> LaneState[Any]:
        lane = self._forward.open(capacity)
        self._forward.absorb(lane, np.asarray(ids), rows)
        return lane

    def _window(self) -> Window:
        rows = self._random.choice((1, 2, 3, self._widest // 2, self._widest))
        tokens = self._ids(rows)
        if rows < 3 or self._random.random() < 0.5:
            return chain(tokens[0], tokens[1:])
        parents = [self._random.randrange(max(0, row - 4), row) for row in range(1, rows)]
        return tree(tokens[0], tokens[1:], parents)

    def _path(self, window: Window) -> tuple[int, ...]:
        leaf = self._random.randrange(len(window))
        return tuple(window.path_to(leaf))

    def _ids(self, count: int) -> list[int]:
        return [self._random.randrange(self._vocabulary) for _ in range(count)]
