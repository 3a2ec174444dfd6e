"""Runs every case and prints what became of it: passed, failed, or skipped with the part it needs."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.end_to_end.cases.table import CASES, Case

TESTS = Path(__file__).resolve().parents[2]


class Outcomes:
    """What became of each test, by its name below `tests`; a pytest plugin."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hear of one phase of one test. A test that was skipped did not pass."""
        name = report.nodeid.removeprefix("tests/")
        if not report.passed:
            self.failed[name] = str(report.longrepr)[-1500:]
        elif report.when == "call":
            self.passed.add(name)

    def of(self, test: str) -> tuple[int, list[str]]:
        """How many forms of a test passed, and what failed; a test that never ran failed."""
        passed = [name for name in self.passed if _is(name, test) and name not in self.failed]
        failed = [f"{name}: {text}" for name, text in self.failed.items() if _is(name, test)]
        return len(passed), failed if passed or failed else [f"{test}: never ran"]


def _is(name: str, test: str) -> bool:
    return name == test or name.startswith(test + "[")


def run(cases: Sequence[Case], processes: int) -> tuple[Outcomes, str]:
    """Run the tests of the cases, each once; what pytest printed comes back too."""
    outcomes, printed = Outcomes(), io.StringIO()
    tests = dict.fromkeys(str(TESTS / test) for case in cases for test in case.tests)
    spread = ["-n", str(processes), "--dist", "worksteal"] if processes > 1 else []
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        pytest.main([*tests, "-q", f"--rootdir={TESTS.parent}", *spread], plugins=[outcomes])
    return outcomes, printed.getvalue()


def became(case: Case, outcomes: Outcomes) -> tuple[str, str]:
    """passed, failed or skipped, and a word about it."""
    told = [outcomes.of(test) for test in case.tests]
    failed = [line for _, lines in told for line in lines]
    count = sum(passed for passed, _ in told)
    if failed:
        return "failed", "\n".join(failed)
    if case.needs:
        return "skipped", f"needs {case.needs}" + (f"; what is here of it passes in {_tests(count)}" if count else "")
    return "passed", _tests(count) + (f"; {case.note}" if case.note else "")


def _tests(count: int) -> str:
    return f"{count} test{'s' if count != 1 else ''}"


def figures(counts: Mapping[str, int], tests: int, seconds: float) -> str:
    """The last line."""
    counted = ", ".join(f"{counts.get(status, 0)} {status}" for status in ("passed", "failed", "skipped"))
    return f"cases: {sum(counts.values())} cases, {counted}, {tests} tests, {seconds:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; 0 when no case failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="ID", action="append", help="run this case, several times for several")
    parser.add_argument("--processes", type=int, default=2, help="pytest's workers")
    flags = parser.parse_args(arguments)
    cases = [case for case in CASES if not flags.only or case.id in flags.only]
    began = time.monotonic()
    outcomes, printed = run(cases, flags.processes)
    counts: Counter[str] = Counter()
    for case in cases:
        status, word = became(case, outcomes)
        counts[status] += 1
        print(f"{case.id:8} {status:8} {word}")
    if counts["failed"] and not outcomes.failed:
        print(printed)
    print(figures(counts, len(outcomes.passed), time.monotonic() - began))
    return 1 if counts["failed"] or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
