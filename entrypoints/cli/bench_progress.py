"""How far a benchmark is: a line for each cell on stderr, and on a terminal the running cell's replies before it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import TextIO

from tensorfold.application.benchmark_results import Row
from tensorfold.application.benchmarking import Listener
from tensorfold.entrypoints.cli.lines import warn


class CellProgress(Listener):
    """Shows a benchmark's cells; `terminal` is where a line can be redrawn, None where it cannot."""

    def __init__(self, cells: int, terminal: TextIO | None, say: Callable[[str], None] = warn) -> None:
        self._cells = cells
        self._terminal = terminal
        self._say = say
        self._done = 0
        self._cell = ""
        self._replies = 0

    def began(self, mode: str, streams: int, replies: int) -> None:
        """Name the cell."""
        self._cell = f"{mode}, {streams} stream{'' if streams == 1 else 's'}"
        self._replies = replies
        self.replied(0)

    def replied(self, done: int) -> None:
        """Redraw the running cell."""
        self._draw(f"{self._done + 1} of {self._cells}: {self._cell}: {done} of {self._replies} replies")

    def measured(self, row: Row) -> None:
        """The cell's line, which stays."""
        self.close()
        self._done += 1
        figures = f"{row.rate:.1f} tokens/s, first token p50 {row.first_p50_s:.3f} s"
        self._say(f"{self._done} of {self._cells}: {row.name}: {figures}")

    def close(self) -> None:
        """Wipe what was drawn."""
        self._draw("")

    def _draw(self, line: str) -> None:
        if self._terminal is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._terminal.write(f"\r\x1b[2K{line}")
            self._terminal.flush()


def terminal() -> TextIO | None:
    """Stderr where it is a terminal."""
    try:
        return sys.stderr if sys.stderr.isatty() else None
    except (AttributeError, ValueError):
        return None
