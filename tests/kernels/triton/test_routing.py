"""How the compiler lays out a router's sums, which decides their bits, for cards that are not here."""

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


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_a_rows_logits_are_summed_in_one_layout_at_every_row_count(architecture: int) -> None:
    command = (sys.executable, "-m", "tests.kernels.triton.routing_compiled", str(architecture))
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=PATHS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["logits_bf16", "logits_float32"]
