"""Lines a user reads: prefixed, flushed at once, so that logs show up under service managers."""

from __future__ import annotations

import faulthandler
import sys


def say(line: str) -> None:
    """One line of the server's own on stdout."""
    print(f"[tensorfold] {line}", flush=True)


def warn(line: str) -> None:
    """One line on stderr."""
    print(f"[tensorfold] {line}", file=sys.stderr, flush=True)


def dump_stacks(line: str) -> None:
    """A line and every thread's stack on stderr."""
    warn(line)
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
