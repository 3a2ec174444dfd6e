"""Triton kernels in the interpreter, and their machine code for cards that are not here."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATHS = {"PYTHONPATH": f"{ROOT / '.pkg'}:{ROOT}", "HOME": str(Path.home()), "PATH": "/usr/bin:/bin"}
ABSENT = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)}")
CHECKS = ("add_norm", "gates", "experts_sum", "router")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", *words)
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False)


@pytest.mark.slow
def test_every_kernel_is_near_its_oracle_and_its_rows_do_not_know_their_company() -> None:
    done = run("tests.kernels.triton.interpreted")
    assert done.stdout.split() == [f"check_{name}" for name in CHECKS], done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90, 100, 120])
def test_every_kernel_compiles(architecture: int) -> None:
    done = run("tests.kernels.triton.compiled", str(architecture))
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout.split()) == 6
