"""The sampler's kernels in the interpreter, draw for draw, and their machine code for cards that are not here."""

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


def run(*words: str) -> str:
    command = (sys.executable, "-m", *words)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


CHECKS = (
    "known_draws",
    "every_setting_on_every_form_of_row",
    "rows_of_nothing_and_of_infinities",
    "masks_and_forced_rows",
    "a_row_alone_draws_what_it_draws_in_company",
    "a_draw_leaves_nothing_to_the_next",
    "a_crowd_of_ties_is_settled_by_reading_the_row_again",
    "random_settings",
    "draws_among_named_ids_and_their_shares",
)


def test_the_device_draws_what_the_domain_draws() -> None:
    assert run("tests.kernels.triton.sampler_checks", *CHECKS).split() == list(CHECKS)


@pytest.mark.parametrize("architecture", [80, 90, 100, 120])
def test_sampler_and_acceptance_compile(architecture: int) -> None:
    made = run("tests.kernels.triton.sampler_compiled", str(architecture)).split()
    assert made[::2] == ["survey", "coarse", "fine", "gather", "settle", "accept"]
