"""The Pythons of this machine: on the search path and among pyenv's versions, each really run before it counts."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

MINORS = range(11, 16)
_PROBE = "import ensurepip, platform, sys, venv; print(sys.version_info[1], platform.python_version())"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One Python 3 that can make virtual environments: its minor number, its full version and its file."""

    minor: int
    version: str
    path: Path


def found(minor: int) -> Interpreter | None:
    """The first Python 3.`minor` that runs and can make an environment, or None."""
    name = f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    places = [shutil.which(name), *sorted(pyenv.glob(f"3.{minor}.*/bin/{name}")), shutil.which("python3")]
    for place in places:
        if place is not None and (version := _version(place, minor)) is not None:
            return Interpreter(minor, version, Path(place))
    return None


def _version(place: str | Path, minor: int) -> str | None:
    try:
        done = subprocess.run([place, "-c", _PROBE], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.split()
    return words[1] if done.returncode == 0 and len(words) == 2 and words[0] == str(minor) else None
