"""Attention of Triton in the interpreter, and its machine code for cards that are not here."""

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


@pytest.mark.parametrize(
    "names",
    [
        ("check_rows_of_a_chain", "check_forms", "check_few_rows", "check_windows"),
        ("check_lanes_of_different_lengths", "check_a_tree_across_edges", "check_many_rows"),
        ("check_large_tiles", "check_shares_of_heads"),
        ("check_the_output_gate", "check_values_that_are_no_numbers", "check_moves"),
    ],
    ids=["a chain", "lanes and trees", "large tiles", "gates, moves and what is no number"],
)
def test_rows_that_share_their_keys_have_the_bits_they_have_alone(names: tuple[str, ...]) -> None:
    assert run("tests.kernels.triton.attention_checks", *names) == list(names)


def test_rows_are_placed_as_the_formulas_say() -> None:
    names = ["check_placing", "check_placing_a_span"]
    assert run("tests.kernels.triton.attention_checks", *names) == names


def test_a_prompts_rows_do_not_know_their_span() -> None:
    assert run("tests.kernels.triton.attention_checks", "check_spans") == ["check_spans"]


@pytest.mark.parametrize(("architecture", "kernels"), [(80, 8), (90, 16), (100, 8), (120, 8)])
def test_attention_compiles_within_a_cards_shared_memory(architecture: int, kernels: int) -> None:
    lines = run("tests.kernels.triton.attention_compiled", str(architecture), interpret=False)
    assert len(lines) == kernels
