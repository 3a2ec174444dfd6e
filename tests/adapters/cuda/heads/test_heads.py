"""Draft heads on CUDA's blocks, in Triton's interpreter: they draft what their float64 oracles draft."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PATHS = {"PYTHONPATH": f"{ROOT / '.pkg'}:{ROOT}", "HOME": str(Path.home()), "PATH": "/usr/bin:/bin"}
ABSENT = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)}"),
    pytest.mark.slow,
]
MTP = (
    "check_a_chain_is_the_oracles",
    "check_how_rows_came_does_not_matter",
    "check_lanes_draft_side_by_side_what_they_draft_alone",
    "check_many_kept_rows_wait_without_being_lost",
    "check_more_drafts_for_one_lane_write_no_other_lanes_keys",
    "check_drafts_are_queued_behind_launches",
)
DFLASH = (
    "check_candidates_and_pairs_are_the_oracles",
    "check_how_tokens_came_does_not_matter",
    "check_drafts_are_queued_behind_launches",
    "check_matrices_are_rounded_to_few_bits",
)


def run(*words: str) -> list[str]:
    command = (sys.executable, "-m", *words)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@pytest.mark.parametrize(("family", "checks"), [("qwen3_5", MTP[:1]), ("nemotron_h", MTP)])
def test_a_models_own_head_drafts_what_its_oracle_drafts(family: str, checks: tuple[str, ...]) -> None:
    assert run("tests.adapters.cuda.heads.mtp_checks", family, *checks) == list(checks)


def test_a_drafters_lattice_is_its_oracles() -> None:
    assert run("tests.adapters.cuda.heads.dflash_checks") == list(DFLASH)
