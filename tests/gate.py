"""Every check behind one command: style, types, import contracts, tests with coverage, and a short proof.

`--quick` is the inner loop: the same checks, without the tests marked slow and without coverage. Prints the figures on
its last line; the exit code is not zero when any check fails.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEAST_COVERAGE = 95.0
SHORT_PROOF_TOKENS = 200_000
SHORT_RECORD_TOKENS = 72_000
PYTHON = sys.executable
TOOLS = Path(sys.executable).parent
CUDA_FOLDERS = ("tests/adapters/cuda", "tests/kernels/cuda", "tests/kernels/triton")


@dataclass(frozen=True)
class Check:
    """One finished check and what it printed."""

    name: str
    passed: bool
    output: str
    seconds: float


def run(name: str, command: list[str], *, show: bool = False, **environment: str) -> Check:
    """Run one command from the project's folder."""
    print(f"-- {name}", flush=True)
    began = time.monotonic()
    # What pytest makes of a file's asserts is kept as bytecode: without it each run spends most of its start on it.
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": f"{ROOT / '.pkg'}{os.pathsep}{ROOT}"}
    env = os.environ | kept | environment
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check = Check(name, done.returncode == 0, done.stdout, time.monotonic() - began)
    if show or not check.passed:
        print(check.output, flush=True)
    return check


def first(pattern: str, text: str, default: str = "?") -> str:
    """The first group of a pattern."""
    found = re.search(pattern, text)
    return found.group(1) if found else default


def static_checks() -> list[Check]:
    """Style, types and contracts."""
    return [
        run("style", [str(TOOLS / "ruff"), "check", "--quiet", "."]),
        run("format", [str(TOOLS / "ruff"), "format", "--quiet", "--check", "."]),
        run("types", [str(TOOLS / "mypy")]),
        run("import contracts", [str(TOOLS / "lint-imports"), "--no-cache"]),
    ]


def tests(quick: bool) -> list[Check]:
    """The test suite on two workers; with branch coverage unless quick."""
    command = [PYTHON, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "--durations", "8"]
    if quick:
        return [run("tests", [*command, "-m", "not slow and not demo"], show=True)]
    covered = [*command, "--cov", "--cov-report", "term:skip-covered", f"--cov-fail-under={LEAST_COVERAGE}"]
    return [run("tests", covered, show=True)]


def cuda_tests(python: str) -> list[Check]:
    """The CUDA backend without a card: kernels compiled and interpreted, in the environment that has what it takes."""
    if sys.platform != "linux":
        print("-- CUDA tests: left out, since Triton has no package for this system", flush=True)
        return []
    folders = [folder for folder in CUDA_FOLDERS if (ROOT / folder).is_dir()]
    command = [python, "-m", "pytest", "-q", "-n", "2", "--cuda-tools", "--durations", "5", *folders]
    # One thread a worker: there are two of them, and a test's arrays are small.
    return [run("CUDA tests", command, show=True, OMP_NUM_THREADS="1", TRITON_INTERPRET="1")]


def short_proof(part: str, tokens: int) -> list[Check]:
    """A proof over fewer tokens than `make prove` runs, with a seed of its own each time."""
    return [run(f"{part} proof", [PYTHON, "-m", f"tests.prove.{part}", "--tokens", str(tokens)], show=True)]


def side_by_side(*groups: Callable[[], list[Check]]) -> list[Check]:
    """Groups of checks at the same time, each of one processor; in the order given."""
    with ThreadPoolExecutor(len(groups)) as runners:
        return [check for checks in runners.map(lambda group: group(), groups) for check in checks]


def every_check(cuda_python: str) -> list[Check]:
    """All of them, in under a quarter of an hour on two processors."""
    alone = side_by_side(
        lambda: static_checks() + short_proof("recall", SHORT_RECORD_TOKENS),
        lambda: short_proof("core", SHORT_PROOF_TOKENS),
    )
    return alone + tests(False) + cuda_tests(cuda_python)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cuda-python", help="the Python of the environment with torch, Triton and NVRTC")
    given = parser.parse_args()
    quick = given.quick
    if not quick and given.cuda_python is None:
        parser.error("every check needs --cuda-python; `make test` sets it up and names it")
    began = time.monotonic()
    checks = static_checks() + tests(True) if quick else every_check(given.cuda_python)
    by_name = {check.name: check for check in checks}
    failed = [check.name for check in checks if not check.passed]
    for check in checks:
        print(f"   {check.name:17} {'ok' if check.passed else 'FAILED':6} {check.seconds:6.1f} s")
    counted = [by_name[name].output for name in ("tests", "CUDA tests") if name in by_name]
    passed = sum(int(first(r"(\d+) passed", output, "0")) for output in counted)
    share = first(r"TOTAL.*?(\d+(?:\.\d+)?)%", by_name["tests"].output, "")
    coverage = f"{share}%" if share else "not measured"
    contracts = first(r"Contracts: (\d+) kept", by_name["import contracts"].output, "0")
    files = first(r"no issues found in (\d+) source files", by_name["types"].output, "0")
    print(
        f"{'FAILED: ' + ', '.join(failed) if failed else 'ok'}: {passed} tests passed, branch coverage of domain and "
        f"application {coverage}, {contracts} contracts kept, mypy clean over {files} files, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
