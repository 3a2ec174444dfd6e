"""One line at the foot of a terminal that says what a server does now, drawn again in place twice a second.

Only where a person looks: a file, a pipe and a service manager get none of it. It costs no request anything.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tensorfold.entrypoints.cli.lines import draw

_REDRAW_S = 0.5
_PATIENCE_S = 2.0
"""How long the end waits for a terminal that takes nothing."""
_WINDOW_S = 2.0
"""Speeds are those of so many seconds: shorter ones jump, longer ones lag."""


@dataclass(frozen=True, slots=True)
class Now:
    """What a server does at a moment; the last two are tokens since its start."""

    connections: int
    decoding: int
    filling: int
    waiting: int
    decoded: int
    filled: int


class LiveLine:
    """Words for a reading, from it and those of the last seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._past: deque[tuple[float, Now]] = deque()

    def words(self, now: Now) -> str:
        """The line."""
        at = self._clock()
        while len(self._past) > 1 and at - self._past[1][0] >= _WINDOW_S:
            self._past.popleft()
        self._past.append((at, now))
        then, before = self._past[0]
        seconds = at - then
        decode = (now.decoded - before.decoded) / seconds if seconds > 0 else 0.0
        prefill = (now.filled - before.filled) / seconds if seconds > 0 else 0.0
        return (
            f"{now.connections} connection{'' if now.connections == 1 else 's'}, {now.decoding} decoding, "
            f"{now.filling} reading, {now.waiting} waiting | decode {decode:.1f}, prefill {prefill:.1f} tok/s"
        )


@contextmanager
def live_line(read: Callable[[], Now]) -> Iterator[None]:
    """Draw what `read` says until the end of the block, on a thread of its own."""
    ended = threading.Event()
    thread = threading.Thread(target=_redraw, args=(read, ended), name="live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_PATIENCE_S)
        draw("")


def _redraw(read: Callable[[], Now], ended: threading.Event) -> None:
    line = LiveLine()
    with suppress(Exception):
        while not ended.wait(_REDRAW_S):
            columns = shutil.get_terminal_size((80, 24)).columns
            draw(line.words(read())[: columns - 1])
