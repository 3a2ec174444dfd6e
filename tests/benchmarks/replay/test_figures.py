"""Least figures tell what is reached, and the table shows every policy."""

from __future__ import annotations

import pytest

from tests.benchmarks.replay.compare import OFF, RECALL, SUFFIX_ALONE, Result, compare
from tests.benchmarks.replay.costs import CHAINS, TREES
from tests.benchmarks.replay.least import least
from tests.benchmarks.replay.samples import VOCABULARY, again, ids
from tests.benchmarks.replay.table import lines
from tests.benchmarks.replay.tally import Tally
from tests.benchmarks.replay.workload import Request, Workload


def _result(name: str, **costs: float) -> Result:
    """A workload of 100 ids that took the given times; every window of Recall landed half."""
    work = Workload(name, "", (), (Request((1,), ids(1, 100)),))
    names = {"off": OFF, "suffix": SUFFIX_ALONE, "recall": RECALL, "fixed": "7-id window"}
    return Result(
        work,
        {
            names[policy]: {"m": Tally(rounds=10, tokens=100, cost=cost, window_ids=10, landed_ids=5)}
            for policy, cost in costs.items()
        },
    )


@pytest.mark.parametrize(
    ("result", "reached"),
    [
        (_result("regenerate", recall=1), [False]),
        (_result("edit 80", recall=50, fixed=100), [True]),
        (_result("edit 200", recall=51, fixed=100), [False]),
        (_result("edit 40", recall=51, fixed=100), []),
        (_result("agent", recall=100, suffix=120), [True]),
        (_result("agent", recall=100, suffix=119), [False]),
        (_result("chat", recall=100.5, off=100), [True]),
        (_result("random", recall=100.6, off=100), [False]),
        (_result("hostile keys", recall=102.9, off=100), [True]),
        (_result("hostile turn", recall=103.1, off=100), [False]),
    ],
    ids=lambda value: value.workload.name if isinstance(value, Result) else str(value),
)
def test_least_figures_tell_what_is_reached(result: Result, reached: list[bool]) -> None:
    assert [figure.reached for figure in least(result, ["m"])] == reached


def test_the_table_has_a_row_for_every_policy_and_a_figure_for_every_machine() -> None:
    result = compare(again(1), [CHAINS, TREES], VOCABULARY)
    shown = list(lines(result, [CHAINS, TREES]))
    assert len(shown) == 2 + len(result.tallies)
    assert all(row.split()[-1].replace(".", "").isdigit() for row in shown[2:])
