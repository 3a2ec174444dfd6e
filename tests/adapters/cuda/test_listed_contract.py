"""The port's promises, kept by lanes, launches and rounds queued ahead over a decoder of hashes: no card, no kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from tests.adapters.cuda.listed_model import listed
from tests.contracts.candidates import checks_of, names
from tests.contracts.target_model import (
    head_checks,
    image_checks,
    lane_checks,
    mask_checks,
    misuse_checks,
    row_checks,
    shape_checks,
)
from tests.contracts.target_model.rows import ModelSubject

CHECKS = checks_of(lane_checks, row_checks, head_checks, mask_checks, image_checks, misuse_checks, shape_checks)


@pytest.fixture(scope="module", params=[False, True], ids=["layer by layer", "graphs"])
def subject(request: Any) -> Iterator[ModelSubject]:
    # Nine streams have windows of 16 rows: those of 64 take the checks ten times as long.
    made = listed(graphs=request.param, head=True, streams=9)
    free = made.held
    yield ModelSubject(made.model, strict=True, pedantic=True)
    assert made.model.lanes() == () and made.held == free
    assert bool(made.tape.played) == request.param
    made.model.shutdown()


def test_lanes_of_a_model_whose_rows_need_their_own_launch_share_none() -> None:
    made = listed()
    made.model._limits = replace(made.model.limits, shares_rounds=False)
    misuse_checks.lanes_that_may_not_share_raise(ModelSubject(made.model, strict=True))


@pytest.mark.parametrize("check", CHECKS, ids=names(CHECKS))
def test_a_model_of_listed_layers_promises_that(check: Callable[[ModelSubject], None], subject: ModelSubject) -> None:
    check(subject)
