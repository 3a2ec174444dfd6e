"""Keeps the promises' tests in sight: what was collected, and, where every test ran, that each promised one ran.

A promised test that was skipped ran as little as one that is gone: a whole run that lacks one fails. The tests of the
CUDA kernels have an environment of their own, whose run (`--cuda-tools`) answers for them and lets nothing be skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.promised import missing, with_cuda_tools

COLLECTED: pytest.StashKey[tuple[str, ...]] = pytest.StashKey()
"""Node ids of everything that was collected, before anything was deselected."""
RAN: set[str] = set()
SKIPPED: set[str] = set()
CARD = "card"
"""A word of the reason of every test that no environment without an NVIDIA card can run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The run in the environment with torch, Triton and NVRTC says so."""
    parser.addoption(
        "--cuda-tools", action="store_true", help="torch, Triton and NVRTC are here: only for want of a card is skipped"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Remember what there is."""
    config.stash[COLLECTED] = tuple(item.nodeid for item in items)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what ran; with several workers, reports of all of them come here."""
    if report.when == "call" and not report.skipped:
        RAN.add(report.nodeid)
    _remember_skipped(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Remember whole files that were skipped."""
    _remember_skipped(report)


def _remember_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if report.skipped and CARD not in reason:
        SKIPPED.add(f"{report.nodeid} ({reason})")


def _whole(config: pytest.Config) -> bool:
    """Whether this process reports on a run of every test."""
    given = config.option
    picked = given.keyword or given.markexpr or getattr(given, "deselect", None) or given.collectonly
    return not picked and config.args == config.getini("testpaths") and not hasattr(config, "workerinput")


def _faults(config: pytest.Config) -> list[str]:
    """What a run that answers for promises lacks, a line each."""
    if hasattr(config, "workerinput"):
        return []
    absent = "promised in docs/promises.md, but did not run: {}".format
    if config.option.cuda_tools:
        owed = [absent(test) for test in missing(RAN) if with_cuda_tools(test)]
        return owed + [f"skipped where nothing may be: {test}" for test in sorted(SKIPPED)]
    return [absent(test) for test in missing(RAN) if not with_cuda_tools(test)] if _whole(config) else []


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that lacks something it answers for."""
    if exitstatus == pytest.ExitCode.OK and _faults(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what the run lacks."""
    for fault in _faults(config):
        terminalreporter.write_line(fault, red=True)
