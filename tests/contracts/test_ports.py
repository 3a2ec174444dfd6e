"""Every adapter and every fake keeps its port's promises: for each port a list of implementations, a list of checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.contracts.candidates import Candidate, checks_of
from tests.contracts.drafts import acceptance_checks, source_checks
from tests.contracts.registry_benchmarks import BENCHMARK_FILES, CHAT_SERVERS
from tests.contracts.registry_drafts import ACCEPTANCE_RULES, SOURCES
from tests.contracts.registry_text import GRAMMARS, TEMPLATES, TOKENIZERS
from tests.contracts.registry_updates import KEY_FILES, REQUEST_FILES, UPDATES
from tests.contracts.registry_world import HUBS, LINKS, MACHINES, PACKAGES, READERS, RECALLS, SERVICES, SNAPSHOTS
from tests.contracts.text import grammar_checks, template_checks, tokenizer_checks
from tests.contracts.world import (
    benchmark_checks,
    checkpoint_checks,
    feed_and_report_checks,
    hub_checks,
    key_checks,
    link_checks,
    machine_checks,
    package_checks,
    recall_checks,
    request_checks,
    server_checks,
    snapshot_checks,
    update_checks,
)

SUITES: tuple[tuple[str, Sequence[Candidate[Any]], ModuleType], ...] = (
    ("tokenizer", TOKENIZERS, tokenizer_checks),
    ("template", TEMPLATES, template_checks),
    ("grammar", GRAMMARS, grammar_checks),
    ("machine", MACHINES, machine_checks),
    ("recall", RECALLS, recall_checks),
    ("snapshots", SNAPSHOTS, snapshot_checks),
    ("link", LINKS, link_checks),
    ("service", SERVICES, feed_and_report_checks),
    ("key_file", KEY_FILES, key_checks),
    ("request_file", REQUEST_FILES, request_checks),
    ("update", UPDATES, update_checks),
    ("benchmark_files", BENCHMARK_FILES, benchmark_checks),
    ("chat_server", CHAT_SERVERS, server_checks),
    ("reader", READERS, checkpoint_checks),
    ("hub", HUBS, hub_checks),
    ("package", PACKAGES, package_checks),
    ("draft_source", SOURCES, source_checks),
    ("acceptance", ACCEPTANCE_RULES, acceptance_checks),
)
CASES = [
    pytest.param(candidate, check, id=f"{port}-{candidate.name}-{check.__name__}")
    for port, candidates, module in SUITES
    for candidate in candidates
    for check in checks_of(module)
]


@pytest.mark.parametrize(("candidate", "check"), CASES)
@pytest.mark.slow
def test_an_implementation_promises_that(
    candidate: Candidate[Any], check: Callable[[Any], None], tmp_path: Path
) -> None:
    subject = candidate.build(tmp_path)
    try:
        check(subject)
    finally:
        closed = getattr(subject, "template", subject)
        if hasattr(closed, "close"):
            closed.close()
