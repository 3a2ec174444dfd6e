"""How far a download is: a bar on a terminal, and plain lines a few seconds apart everywhere else.

The bar goes to stderr, so that what is said on stdout stays whole; it is wiped before every line.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from tensorfold.application.ports.checkpoints import Transfer

_REDRAW_S = 0.2
_LINE_S = 5.0
_SMOOTH = 0.3
_LEAST_BAR = 10
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class Progress:
    """One model's download. `say` takes whole lines; `clock` is monotonic seconds."""

    def __init__(
        self,
        name: str,
        say: Callable[[str], None],
        terminal: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._say = say
        self._clock = clock
        self._terminal = terminal if terminal is not None else _terminal()
        self._last = 0.0
        self._seen: tuple[float, int] | None = None
        self._speed = 0.0
        self._drawn = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *ended: object) -> None:
        self.close()

    def say(self, line: str) -> None:
        """A line, over the bar."""
        self.close()
        self._say(line)

    def moved(self, transfer: Transfer) -> None:
        """Show how far it is, not more often than a person can read."""
        now = self._clock()
        is_whole = transfer.done >= transfer.total
        if self._seen is None:
            self._seen, self._last = (now, transfer.done), now
            return
        pause = _REDRAW_S if self._terminal is not None else _LINE_S
        is_news = transfer.done > self._seen[1] if is_whole else now - self._last >= pause
        if not is_news:
            return
        self._measure(now, transfer.done)
        self._last = now
        if self._terminal is None:
            self._say(self._line(transfer))
        else:
            self._draw(self._terminal, transfer)
        if is_whole:
            self.close()

    def close(self) -> None:
        """Wipe the bar."""
        if self._drawn and self._terminal is not None:
            _write(self._terminal, "\r\x1b[2K")
            self._drawn = False

    def _measure(self, now: float, done: int) -> None:
        assert self._seen is not None
        then, before = self._seen
        if now > then:
            speed = max(0.0, (done - before) / (now - then))
            self._speed = speed if not self._speed else self._speed + _SMOOTH * (speed - self._speed)
        self._seen = (now, done)

    def _line(self, transfer: Transfer) -> str:
        return f"{self._name}: {_share(transfer)}%, {_of(transfer)}, {size(self._speed)}/s{self._left(transfer)}"

    def _left(self, transfer: Transfer) -> str:
        left = transfer.total - transfer.done
        if not left or self._speed < 1:
            return ""
        minutes, seconds = divmod(round(left / self._speed), 60)
        return f", {minutes}:{seconds:02} left" if minutes < 6000 else ""

    def _draw(self, terminal: TextIO, transfer: Transfer) -> None:
        columns = shutil.get_terminal_size((80, 24)).columns
        tail = f" {_share(transfer):3}%  {_of(transfer)}  {size(self._speed)}/s{self._left(transfer)}"
        width = columns - len(self._name) - len(tail) - 5
        text = self._name + tail
        if width >= _LEAST_BAR:
            full = width * transfer.done // max(transfer.total, 1)
            text = f"{self._name}  [{'#' * full}{'-' * (width - full)}]{tail}"
        _write(terminal, f"\r\x1b[2K{text[: columns - 1]}")
        self._drawn = True


def size(count: float) -> str:
    """Bytes as a person reads them, in decimal units."""
    for unit, word in _UNITS:
        if count >= unit:
            return f"{count / unit:.2f} {word}"
    return f"{count:.0f} bytes"


def _of(transfer: Transfer) -> str:
    return f"{size(transfer.done)} of {size(transfer.total)}"


def _share(transfer: Transfer) -> int:
    return 100 * transfer.done // max(transfer.total, 1)


def _terminal() -> TextIO | None:
    """Where a bar can be drawn."""
    try:
        return sys.stderr if sys.stderr.isatty() else None
    except (AttributeError, ValueError):
        return None


def _write(terminal: TextIO, text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        terminal.write(text)
        terminal.flush()
