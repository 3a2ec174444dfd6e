"""The table of cases is whole, and every test it names exists."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.end_to_end.cases.__main__ import TESTS, Outcomes, became, figures
from tests.end_to_end.cases.table import CASES, Case

AREAS = {"SSE": 6, "STP": 3, "TC": 7, "RSN": 3, "TPL": 7, "REQ": 6, "HTTP": 5, "RUN": 6, "CTX": 2, "EXA": 4, "PC": 4}
AREAS |= {"LD": 4, "CLI": 4, "RCL": 2}


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_case_is_there_once_and_says_what_is_done_and_expected() -> None:
    ids = [case.id for case in CASES]
    assert len(set(ids)) == len(ids)
    assert {area: sum(name.startswith(f"{area}-") for name in ids) for area in AREAS} == AREAS
    assert all(len(case.done) > 10 and len(case.expected) > 10 for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_case_names_tests_that_exist_or_what_it_needs(case: Case) -> None:
    assert case.tests or case.needs
    for test in case.tests:
        path, _, name = test.partition("::")
        assert name.partition("[")[0] in functions(TESTS / path), test


def test_a_case_passes_when_all_its_tests_do_and_a_test_that_never_ran_fails_it() -> None:
    outcomes = Outcomes()
    outcomes.passed = {"a.py::test_x[1]", "a.py::test_x[2]", "a.py::test_xy"}
    assert became(Case("A-1", "", "", ("a.py::test_x",)), outcomes) == ("passed", "2 tests")
    assert became(Case("A-2", "", "", ("a.py::test_x", "a.py::test_z")), outcomes)[0] == "failed"
    assert became(Case("A-3", "", "", (), needs="a part"), outcomes) == ("skipped", "needs a part")
    outcomes.failed["a.py::test_x[2]"] = "why"
    assert became(Case("A-1", "", "", ("a.py::test_x",), needs="a part"), outcomes)[0] == "failed"
    assert figures({"passed": 2, "skipped": 1}, 7, 3.2) == "cases: 3 cases, 2 passed, 0 failed, 1 skipped, 7 tests, 3 s"
