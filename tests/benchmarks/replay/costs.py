"""What a round costs by its rows, in times of one row: the curve the least figures stand on, and the demo's own."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tensorfold.domain.drafting.costs import CostCurve
from tensorfold.entrypoints.cli.opening import check, schedule
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import cache_folder, run_settings

STATED = ((1, 1.0), (2, 1.05), (16, 1.05), (32, 1.4), (64, 2.6))


@dataclass(frozen=True, slots=True)
class Machine:
    """A model as the replay sees it: its curve, in times of one row, and the most rows it verifies at once."""

    name: str
    points: tuple[tuple[int, float], ...]
    chain: int
    tree: int

    @property
    def curve(self) -> CostCurve:
        """A curve of its own for each run."""
        return CostCurve(self.points)

    def words(self) -> str:
        """The curve in one line."""
        return ", ".join(f"{rows} rows {cost:.2f}" for rows, cost in self.points)


CHAINS = Machine("stated curve", STATED, 64, 1)
TREES = Machine("stated curve, trees", STATED, 64, 64)


def demo_machine() -> Machine | None:
    """The demo's limits and the times its load measures; None when no checkpoint of it has been made here."""
    cache = cache_folder(os.environ)
    if not list((cache / "demo").glob("*/config.json")):
        return None
    settings = run_settings(parse(["verify", "demo"]), {})
    container = Container(cache=cache)
    scheduler = schedule(check(settings, container, _quiet), settings, container, _quiet)
    scheduler.start()
    try:
        scheduler.wait_ready()
        model = scheduler.engine.model
        one = model.costs.rows_ms[0][1]
        points = tuple((rows, ms / one) for rows, ms in model.costs.rows_ms)
        return Machine("the demo's measured curve", points, model.limits.chain_width, model.limits.tree_width)
    finally:
        scheduler.stop(30.0)


def _quiet(line: str) -> None:
    """Nothing of the load is of interest here."""
