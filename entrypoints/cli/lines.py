"""Lines a user reads: prefixed, written at once, so that logs show up under service managers.

A line never fails: behind a closed pipe or on a full disk it is lost, and the server serves on.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
from typing import TextIO


def say(line: str) -> None:
    """One line of the server's own on stdout."""
    _write(sys.stdout, f"[tensorfold] {line}")


def warn(line: str) -> None:
    """One line on stderr."""
    _write(sys.stderr, f"[tensorfold] {line}")


def put(line: str = "") -> None:
    """One line of a command's result on stdout, as it is."""
    _write(sys.stdout, line)


def _write(stream: TextIO, line: str) -> None:
    """Past the stream's buffer: a line that cannot be written is lost, and neither it nor a request stays behind it."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        print(line, file=stream, flush=True)
        return
    data = f"{line}\n".encode(stream.encoding or "utf-8", "backslashreplace")
    with contextlib.suppress(OSError):
        stream.flush()
        while data:
            data = data[os.write(descriptor, data) :]


def dump_stacks(line: str) -> None:
    """A line and every thread's stack on stderr."""
    warn(line)
    with contextlib.suppress(OSError, ValueError):
        faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
