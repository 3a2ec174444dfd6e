"""The contracts of the smaller ports have teeth: each of their checks notices an implementation that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.candidates import checks_of
from tests.contracts.drafts.liars import ACCEPTANCE_LIES, DRAFT_LIES
from tests.contracts.test_ports import SUITES
from tests.contracts.text.liars import GRAMMAR_LIES, TEMPLATE_LIES, TOKENIZER_LIES
from tests.contracts.world.benchmark_liars import BENCHMARK_LIES
from tests.contracts.world.liars import LINK_LIES, MACHINE_LIES, RECALL_LIES, SERVICE_LIES, SNAPSHOT_LIES, SOURCE_LIES
from tests.contracts.world.update_liars import KEY_LIES, REQUEST_LIES, UPDATE_LIES

PORT_LIES = (
    *TOKENIZER_LIES,
    *TEMPLATE_LIES,
    *GRAMMAR_LIES,
    *MACHINE_LIES,
    *RECALL_LIES,
    *SNAPSHOT_LIES,
    *LINK_LIES,
    *SERVICE_LIES,
    *KEY_LIES,
    *REQUEST_LIES,
    *UPDATE_LIES,
    *BENCHMARK_LIES,
    *SOURCE_LIES,
    *DRAFT_LIES,
    *ACCEPTANCE_LIES,
)
CASES = [pytest.param(check, build, id=f"{check.__name__}-{at}") for at, (check, build) in enumerate(PORT_LIES)]


@pytest.mark.parametrize(("check", "build"), CASES)
def test_a_broken_promise_is_noticed(
    check: Callable[[Any], None], build: Callable[[Path], Any], tmp_path: Path
) -> None:
    # A ValueError is an implementation that raises where its port says it never does.
    with pytest.raises((AssertionError, ValueError)):
        check(build(tmp_path))


def test_every_check_of_every_port_notices_something() -> None:
    caught = {check for check, _ in PORT_LIES}
    idle = [check.__name__ for _, _, module in SUITES for check in checks_of(module) if check not in caught]
    assert idle == []
