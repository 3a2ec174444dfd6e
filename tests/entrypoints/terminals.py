"""A terminal in place of a stream, and what was written to it."""

from __future__ import annotations

import os
import pty
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


class Terminal:
    """The side of a terminal that a person looks at."""

    def __init__(self, descriptor: int, stream: TextIO) -> None:
        self._descriptor = descriptor
        self.stream = stream

    def seen(self, end: str = "") -> str:
        """Everything written so far, waited for until it ends so."""
        text = b""
        while not text or not text.endswith(end.encode()):
            text += os.read(self._descriptor, 65536)
        return text.decode()


@contextmanager
def terminal() -> Iterator[Terminal]:
    """A terminal that shows bytes as they come."""
    shown, written = pty.openpty()
    tty.setraw(written)
    try:
        with open(written, "w", encoding="utf-8") as stream:
            yield Terminal(shown, stream)
    finally:
        os.close(shown)
