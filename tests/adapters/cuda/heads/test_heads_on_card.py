"""Draft heads of tiny models on a card: what is queued behind launches, in graphs, is what they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from tensorfold.adapters.cuda.heads.makers import block_head, mtp_head  # noqa: E402
from tensorfold.adapters.cuda.model import CudaModel  # noqa: E402
from tensorfold.adapters.cuda.weights import WeightReader  # noqa: E402
from tensorfold.adapters.filesystem.checkpoints import FolderReader  # noqa: E402
from tensorfold.domain.families.binding import bind  # noqa: E402
from tests.adapters.cuda.tiny_cuda import ON_CARD, silent, tiny_cuda  # noqa: E402
from tests.contracts.candidates import names  # noqa: E402
from tests.contracts.target_model import head_checks  # noqa: E402
from tests.contracts.target_model.rows import ModelSubject  # noqa: E402
from tests.kernels.triton import draft_checks  # noqa: E402
from tests.synthetic.plan_checkpoints import dflash_plan, write_drafter  # noqa: E402
from tests.synthetic.tiny_configs import tiny_drafter  # noqa: E402

# A prompt's rows have another arithmetic than a round's, so drafts behind the two may differ in bf16.
CHECKS = (
    head_checks.a_head_answers_each_lane_within_what_was_asked,
    head_checks.a_proposal_changes_no_row,
    head_checks.drafts_follow_the_rows_that_are_kept,
)

KERNELS = tuple(check for name, check in vars(draft_checks).items() if name.startswith("check_"))


def model_of(kind: str, folder: Path) -> CudaModel:
    """A tiny model with its own head, or with a drafter's."""
    tiny = tiny_cuda(folder, "nemotron_h")
    if kind == "chain":
        assert tiny.plan.mtp is not None
        return tiny.model(head=mtp_head(tiny.plan.mtp))
    plan = dflash_plan(tiny_drafter())
    facts = FolderReader().facts(write_drafter(folder / "drafter", tiny_drafter(), 6))
    reader = WeightReader(bind(plan.tensors, facts.tensors, None), facts, silent)
    return tiny.model(head=block_head(plan, reader, "drafter", 4))


@pytest.fixture(scope="module", params=["chain", "block"])
def subject(request: Any, tmp_path_factory: pytest.TempPathFactory) -> ModelSubject:
    return ModelSubject(model_of(request.param, tmp_path_factory.mktemp(request.param)), strict=True, pedantic=True)


@pytest.mark.skipif(not ON_CARD, reason="takes thousands of rows: run on a card")
@pytest.mark.parametrize("check", CHECKS, ids=names(CHECKS))
def test_a_head_on_a_card_promises_that(check: Callable[[ModelSubject], None], subject: ModelSubject) -> None:
    check(subject)


@pytest.mark.skipif(not ON_CARD, reason="takes thousands of rows: run on a card")
def test_what_was_queued_was_used(subject: ModelSubject) -> None:
    ahead = subject.model.drafts_ahead  # type: ignore[attr-defined]
    before = ahead.used
    head_checks.drafts_follow_the_rows_that_are_kept(subject)
    assert ahead.used > before and ahead.faults == 0


@pytest.mark.skipif(not ON_CARD, reason="the interpreter runs these elsewhere: run on a card")
@pytest.mark.parametrize("check", KERNELS, ids=[check.__name__ for check in KERNELS])
def test_kernels_of_drafts_do_on_a_card_what_they_do_in_the_interpreter(check: Callable[[str], None]) -> None:
    check("cuda")
