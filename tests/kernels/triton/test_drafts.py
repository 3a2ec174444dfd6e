"""What stands between the products of draft heads: in the interpreter, and machine code for cards that are not here."""

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
CHECKS = (
    "check_rows_of_many_streams_stand_side_by_side",
    "check_entries_are_laid_out_as_the_host_has_them",
    "check_kept_tokens_and_blocks_are_laid_out_as_the_host_has_them",
    "check_candidates_are_the_best_of_each_row",
    "check_equal_candidates_come_by_their_place",
    "check_pairs_are_sums_of_three",
)
COMPILED = [
    "mix", "place_block", "place_context", "read", "add_parts", "join", "take", "advance",
    "enter_chains", "keep_tokens", "best_of_parts", "best", "pairs", "start_blocks",
]  # fmt: skip


def run(*words: str) -> list[str]:
    command = (sys.executable, "-m", *words)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


def test_rows_of_drafts_move_as_they_are_told() -> None:
    assert run("tests.kernels.triton.draft_checks") == list(CHECKS)


@pytest.mark.parametrize("architecture", [80, 90, 100, 120])
def test_kernels_of_draft_heads_compile(architecture: int) -> None:
    assert run("tests.kernels.triton.draft_compiled", str(architecture)) == COMPILED
