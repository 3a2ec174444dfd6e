"""Kept paths found on the device, in the interpreter, and their machine code for cards that are not here."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATHS = {"PYTHONPATH": f"{ROOT / '.pkg'}:{ROOT}", "HOME": str(Path.home()), "PATH": "/usr/bin:/bin"}
ABSENT = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)}"),
    pytest.mark.slow,
]


def test_paths_found_on_the_device_are_the_domains() -> None:
    command = (sys.executable, "-m", "tests.kernels.triton.acceptance_checks")
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False)
    assert done.stdout.split() == ["check_paths_are_the_domains", "check_a_long_chain_stands_whole"], done.stderr[
        -3000:
    ]
