"""An environment of its own for the client libraries, in the versions named here; gone when the run ends.

The libraries are large and none of the project's own, so the test tools do not ask for them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PINS: Mapping[str, str] = {
    "openai": "3.57.0",
    "litellm": "1.110.2",
    "langchain-openai": "1.7.4",
    "llm": "0.36",
}


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the libraries are; `missing` says why one is not there."""

    python: Path
    missing: Mapping[str, str]


def make(folder: Path, pins: Mapping[str, str] = PINS) -> Environment:
    """Install each library in its version, all together in one environment. What is installed already stays."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    wanted = folder / "wanted.txt"
    wanted.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()), encoding="utf-8")
    return Environment(python, {name: why for name in pins if (why := _install(python, name, wanted)) is not None})


def _install(python: Path, name: str, wanted: Path) -> str | None:
    """Why a library could not be installed; None when it is there."""
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    done = subprocess.run([*pip, "--constraint", str(wanted), name], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return errors[-1] if errors else f"pip ended with {done.returncode}"
