"""The contract of target models has teeth: each broken promise is noticed, each check notices some broken promise."""

from __future__ import annotations

import pytest

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
from tests.contracts.target_model.liars import LIARS, Check, Liar
from tests.contracts.target_model.rows import ModelSubject

CASES = [(liar, check) for liar in LIARS for check in liar.caught_by]


@pytest.mark.parametrize(("liar", "check"), CASES, ids=[f"{liar.name}-{check.__name__}" for liar, check in CASES])
def test_a_broken_promise_is_noticed(liar: Liar, check: Check) -> None:
    with pytest.raises(AssertionError):
        check(ModelSubject(liar.make(), strict=True))


CHECKS = checks_of(lane_checks, row_checks, head_checks, mask_checks, image_checks, misuse_checks, shape_checks)


@pytest.mark.parametrize("check", CHECKS, ids=names(CHECKS))
def test_every_check_notices_some_broken_promise(check: Check) -> None:
    assert any(check in liar.caught_by for liar in LIARS)
