"""Lines a user reads: prefixed, written at once, so that logs show up under service managers.

A line never fails: behind a closed pipe or on a full disk it is lost, and the server serves on.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
from typing import TextIO

_WIPED = "\r\x1b[2K"
"""Takes a terminal back to an empty line."""
_drawn = threading.Event()


def say(line: str) -> None:
    """One line of the server's own on stdout."""
    _write(sys.stdout, f"[tensorfold] {line}")


def warn(line: str) -> None:
    """One line on stderr."""
    _write(sys.stderr, f"[tensorfold] {line}")


def put(line: str = "") -> None:
    """One line of a command's result on stdout, as it is."""
    _write(sys.stdout, line)


def draw(text: str) -> None:
    """A last line of the terminal on stdout, in place of the one drawn before; whatever is said goes above it.

    Empty text takes it away. Nothing is drawn where stdout is no terminal.
    """
    if is_terminal(sys.stdout):
        _drawn.clear() if not text else _drawn.set()
        _send(sys.stdout, f"{_WIPED}{text}")


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError):
        return False


def _write(stream: TextIO, line: str) -> None:
    _send(stream, f"{_WIPED if _drawn.is_set() and is_terminal(stream) else ''}{line}\n")


def _send(stream: TextIO, text: str) -> None:
    """Past the stream's buffer: a line that cannot be written is lost, and neither it nor a request stays behind it."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        print(text, end="", file=stream, flush=True)
        return
    data = text.encode(stream.encoding or "utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        stream.flush()
        while data:
            data = data[os.write(descriptor, data) :]


def dump_stacks(line: str) -> None:
    """A line and every thread's stack on stderr."""
    warn(line)
    with contextlib.suppress(OSError, ValueError):
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
