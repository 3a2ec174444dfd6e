"""Keeps the promises' tests in sight: what was collected, and, where every test ran, that each promised one ran.

A promised test that was skipped ran as little as one that is gone: a whole run that lacks one fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.promised import missing

COLLECTED: pytest.StashKey[tuple[str, ...]] = pytest.StashKey()
"""Node ids of everything that was collected, before anything was deselected."""
RAN: set[str] = set()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Remember what there is."""
    config.stash[COLLECTED] = tuple(item.nodeid for item in items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what ran; with several workers, reports of all of them come here."""
    if report.when == "call" and not report.skipped:
        RAN.add(report.nodeid)


def _whole(config: pytest.Config) -> bool:
    """Whether this process reports on a run of every test."""
    given = config.option
    picked = given.keyword or given.markexpr or getattr(given, "deselect", None) or given.collectonly
    return not picked and config.args == config.getini("testpaths") and not hasattr(config, "workerinput")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a whole run in which a promised test did not run."""
    if _whole(session.config) and exitstatus == pytest.ExitCode.OK and missing(RAN):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name promised tests that did not run."""
    if not _whole(config):
        return
    for test in missing(RAN):
        terminalreporter.write_line(f"promised in docs/promises.md, but did not run: {test}", red=True)
