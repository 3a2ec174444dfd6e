"""Every target model keeps the port's promises: fakes and backends by the same checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contracts.candidates import Candidate, checks_of, names
from tests.contracts.registry import TARGET_MODELS
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

PROMISES = checks_of(lane_checks, row_checks, head_checks)
MASKS = checks_of(mask_checks)
IMAGES = checks_of(image_checks)
MISUSE = checks_of(misuse_checks)
SHAPES = checks_of(shape_checks)


@pytest.fixture(scope="module", params=TARGET_MODELS, ids=names(TARGET_MODELS))
def subject(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelSubject]:
    candidate: Candidate[ModelSubject] = request.param
    built = candidate.build(tmp_path_factory.mktemp(candidate.name))
    yield built
    assert built.model.lanes() == ()
    built.model.shutdown()


@pytest.mark.parametrize("check", PROMISES, ids=names(PROMISES))
@pytest.mark.slow
def test_a_target_model_promises_that(check: Callable[[ModelSubject], None], subject: ModelSubject) -> None:
    check(subject)


@pytest.mark.parametrize("check", MASKS, ids=names(MASKS))
@pytest.mark.slow
def test_a_target_model_that_takes_masks_promises_that(
    check: Callable[[ModelSubject], None], subject: ModelSubject
) -> None:
    if not subject.masks:
        pytest.skip("this model takes no masks yet")
    check(subject)


@pytest.mark.parametrize("check", IMAGES, ids=names(IMAGES))
@pytest.mark.slow
def test_a_target_model_that_makes_images_promises_that(
    check: Callable[[ModelSubject], None], subject: ModelSubject
) -> None:
    if not subject.images:
        pytest.skip("this model makes no images yet")
    check(subject)


@pytest.mark.parametrize("check", MISUSE, ids=names(MISUSE))
def test_a_strict_target_model_promises_that(check: Callable[[ModelSubject], None], subject: ModelSubject) -> None:
    if not subject.strict:
        pytest.skip("this model trusts its caller")
    check(subject)


@pytest.mark.parametrize("check", SHAPES, ids=names(SHAPES))
def test_a_pedantic_target_model_promises_that(check: Callable[[ModelSubject], None], subject: ModelSubject) -> None:
    if not subject.pedantic:
        pytest.skip("this model trusts the shapes of windows")
    check(subject)
