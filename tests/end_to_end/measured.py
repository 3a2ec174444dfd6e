"""Runs a command and writes its exit code and peak memory into a file: `measured.py REPORT COMMAND...`.

A process of its own, and a small one: the system counts what a process was before it became the command, too.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys


def main(report: str, command: list[str]) -> int:
    """Run to the command's end; its exit code. An interrupt meant for the command is left to it."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    child = os.posix_spawn(command[0], command, os.environ)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    with open(report, "w") as file:
        json.dump({"code": code, "peak_bytes": peak}, file)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
