"""The kernels of prompts and experts in the interpreter, and their machine code for cards that are not here."""

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


def run(*words: str, **more: str) -> str:
    command = (sys.executable, "-m", *words)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS | more, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_every_kernel_is_near_its_oracle_and_its_rows_do_not_know_their_company() -> None:
    checked = run("tests.kernels.triton.prompt_checks", TRITON_INTERPRET="1").split()
    source = (ROOT / "tests/kernels/triton/prompt_checks.py").read_text(encoding="utf-8")
    assert len(checked) == source.count("\ndef check_") > 0


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90, 100, 120])
def test_every_kernel_compiles(architecture: int) -> None:
    assert run("tests.kernels.triton.prompt_compiled", str(architecture))
