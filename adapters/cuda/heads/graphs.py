"""Passes of a draft head as graphs, found by what decides their shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]


class Graphs:
    """Graphs by key over one pool; without a card, or where they are not wanted, what is queued runs at once."""

    def __init__(self, device: Any, *, wanted: bool) -> None:
        self._wanted = wanted and torch.device(device).type == "cuda"
        self._made: dict[tuple[Any, ...], Any] = {}
        self._pool: Any = None

    def run(self, key: tuple[Any, ...], queue: Callable[[], None]) -> None:
        """Queue the graph of a key. Its first run is an ordinary one, whose results count; the capture runs nothing."""
        if not self._wanted:
            queue()
        elif key in self._made:
            self._made[key].replay()
        else:
            queue()
            torch.cuda.synchronize()
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool):
                queue()
            self._made[key] = graph


def padded(count: int) -> int:
    """The pass that takes so many rows or lanes: a power of two."""
    return 1 << max(0, count - 1).bit_length()
