"""What class of machine this is, in one line: benchmarks of different classes are not compared.

Names what decides speed and is no secret: system, architecture, processor, cores of this process, memory. No host name.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")
_MOST = 80
_SYSCTL = ("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")


def machine_class() -> str:
    """For example `Linux x86_64, Some Processor 3000, 2 cores, 16 GiB`."""
    cores = _cores()
    parts = [f"{platform.system()} {platform.machine()}", _processor(), f"{cores} core{'' if cores == 1 else 's'}"]
    parts.append(_memory())
    return ", ".join(part for part in parts if part)


def load_average() -> float | None:
    """Processes that ran or waited in the last minute, on average; None where the system does not say."""
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None


def _cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> str:
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return ""
    return f"{round(size / 2**30)} GiB"


def _processor() -> str:
    name = _asked() if platform.system() == "Darwin" else _read(_CPU_INFO)
    plain = "".join(character for character in name if character.isprintable())
    return " ".join(plain.split())[:_MOST]


def _read(path: Path) -> str:
    """The processor's name in the kernel's own list; empty where the list names none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"^model name\s*:(.*)$", text, re.MULTILINE)
    return found[1] if found is not None else ""


def _asked() -> str:
    """The processor's name as macOS says it."""
    try:
        done = subprocess.run(_SYSCTL, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
