"""Looks at other processes through /proc or `ps`, for tests that show that none is left."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path


def children(parent: int) -> set[int]:
    """Ids of the running processes whose parent is `parent`."""
    return {pid for pid, (above, state) in _table().items() if above == parent and state not in "ZX"}


def gone_within(pid: int, seconds: float) -> bool:
    """Whether a process is gone, or ends while we wait; a generous bound, never a measurement."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if pid not in _table() or _table().get(pid, (0, "X"))[1] in "ZX":
            return True
        time.sleep(0.05)
    return False


def _table() -> dict[int, tuple[int, str]]:
    proc = Path("/proc")
    if not (proc / "self/stat").exists():
        listed = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
        rows = (line.split() for line in listed.stdout.splitlines())
        return {int(pid): (int(above), state[0]) for pid, above, state in rows}
    table: dict[int, tuple[int, str]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                # The command's name stands in brackets and may hold spaces; the state follows the last bracket.
                state, above = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            table[int(entry.name)] = (int(above), state)
    return table
