"""Convolutions and recurrences of Triton in the interpreter, and their machine code for cards that are not here."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ABSENT = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)}"),
    pytest.mark.slow,
]


def run(*words: str, interpret: bool = True) -> list[str]:
    """The lines that a module prints; it must not fail. The interpreter is chosen before Triton is imported."""
    settings = {**os.environ, "PYTHONPATH": f"{ROOT / '.pkg'}:{ROOT}", "TRITON_INTERPRET": str(int(interpret))}
    command = (sys.executable, "-m", *words)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=settings, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@pytest.mark.parametrize("name", ["check_delta_steps", "check_mamba2_steps", "check_gated_norms"])
def test_windows_trees_and_replays_are_near_float64_and_equal_to_steps_one_by_one(name: str) -> None:
    assert run("tests.kernels.triton.recurrent_checks", name) == [name]


@pytest.mark.parametrize("name", ["check_delta_scan", "check_mamba2_scan", "check_keys_that_are_alike"])
def test_a_scan_over_a_prompt_is_near_float64_and_may_be_cut_where_a_block_ends(name: str) -> None:
    assert run("tests.kernels.triton.scan_checks", name) == [name]


@pytest.mark.parametrize("architecture", [80, 90, 100, 120])
def test_every_kernel_of_the_recurrences_compiles(architecture: int) -> None:
    assert len(run("tests.kernels.triton.recurrent_compiled", str(architecture), interpret=False)) == 11
