"""A whole run lacks no promised test: one that is gone, skipped or failed makes it fail, and is named."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.promised import promises
from tests.tree import ROOT

pytestmark = pytest.mark.slow

PROJECT = '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib -p no:cacheprovider"\ntestpaths = ["tests"]\n'
PAGE = (
    "| Promise | Test |\n| --- | --- |\n| it holds | `tests/test_it.py::test_holds`, `tests/test_it.py::test_too` |\n"
)
GOOD = "import pytest\n@pytest.mark.parametrize('x', [1, 2])\ndef test_holds(x): pass\ndef test_too(): pass\n"


def ended(folder: Path, tests: str, *words: str, page: str = PAGE) -> tuple[int, str]:
    """A run of a small project with one promise: its exit code and what it printed."""
    for name in ("__init__.py", "conftest.py", "promised.py", "tree.py"):
        (folder / "tests").mkdir(exist_ok=True, parents=True)
        shutil.copy(ROOT / "tests" / name, folder / "tests" / name)
    (folder / "docs").mkdir()
    (folder / "docs" / "promises.md").write_text(page)
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "tests" / "test_it.py").write_text(tests)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_in_which_every_promised_test_ran_is_good(tmp_path: Path, workers: str) -> None:
    code, said = ended(tmp_path, GOOD, "-n", workers)
    assert (code, "promised" in said) == (0, False), said


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_promised_test_that_is_skipped_makes_the_run_fail(tmp_path: Path, workers: str) -> None:
    skipped = GOOD.replace("def test_too(): pass", "@pytest.mark.skip(reason='no')\ndef test_too(): pass")
    code, said = ended(tmp_path, skipped, "-n", workers)
    assert code == 1
    assert "promised in docs/promises.md, but did not run: tests/test_it.py::test_too" in said


def test_a_promised_test_that_is_gone_makes_the_run_fail(tmp_path: Path) -> None:
    code, said = ended(tmp_path, GOOD.replace("test_holds", "test_other"))
    assert code == 1
    assert "did not run: tests/test_it.py::test_holds" in said


def test_a_part_of_the_tests_is_not_held_to_every_promise(tmp_path: Path) -> None:
    code, said = ended(tmp_path, GOOD, "-k", "holds")
    assert (code, "promised" in said) == (0, False), said


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize("whole_file", [False, True])
def test_the_run_with_the_cuda_tools_fails_when_anything_is_skipped(
    tmp_path: Path, workers: str, whole_file: bool
) -> None:
    skip = "pytest.skip('torch is gone', allow_module_level=True)"
    lines = f"import pytest\n{skip}\n" if whole_file else "import pytest\n@pytest.mark.skip('no')\ndef test_it(): ...\n"
    code, said = ended(tmp_path, lines, "-n", workers, "--cuda-tools")
    assert code != 0
    assert "skipped where nothing may be: tests/test_it.py" in said


def test_the_run_with_the_cuda_tools_may_skip_what_needs_a_card(tmp_path: Path) -> None:
    reason = "takes long: run on a card"
    code, said = ended(
        tmp_path, f"{GOOD}@pytest.mark.skip(reason='{reason}')\ndef test_on_it(): pass\n", "--cuda-tools"
    )
    assert (code, "may be" in said) == (0, False), said


def test_the_promises_of_the_cuda_kernels_are_those_of_the_run_with_their_tools(tmp_path: Path) -> None:
    page = PAGE + "| there too | `tests/kernels/cuda/test_rows.py::test_rows` |\n"
    assert ended(tmp_path / "without", GOOD, page=page)[0] == 0
    code, said = ended(tmp_path / "with", GOOD, "--cuda-tools", page=page)
    assert code == 1
    assert "did not run: tests/kernels/cuda/test_rows.py::test_rows" in said


def test_every_row_of_the_page_is_read() -> None:
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| Promise", "| ---"))]
    assert len(promises()) == len(rows) > 100
    assert sum(len(promise.tests) for promise in promises()) == page.count(".py::")
