"""Products on the device: packed slots, prompts, tables and experts, in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ABSENT = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)}")


@pytest.mark.slow
@pytest.mark.parametrize("checks", ["products_checks", "mlp_checks", "expected_checks"])
def test_products_hold_what_is_promised_of_them(checks: str) -> None:
    paths = {"PYTHONPATH": f"{ROOT / '.pkg'}:{ROOT}", "PATH": "/usr/bin:/bin", "TRITON_INTERPRET": "1"}
    command = (sys.executable, "-m", f"tests.adapters.cuda.{checks}")
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=paths, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    source = (ROOT / f"tests/adapters/cuda/{checks}.py").read_text(encoding="utf-8")
    assert len(done.stdout.split()) == source.count("\ndef check_") > 0
