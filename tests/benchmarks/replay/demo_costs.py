"""The demo's own curve and limits, measured by its load."""

from __future__ import annotations

import os

from tensorfold.entrypoints.cli.opening import check, schedule
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import cache_folder, run_settings
from tests.benchmarks.replay.costs import Machine


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
