"""Our float64 logits against transformers and mlx-lm in float32: within 1e-4, and the same best token everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.reference import oracles
from tests.reference.drafter_case import CONTEXTS, DrafterCase
from tests.reference.golden import kept, made
from tests.reference.parity_cases import CASES, LARGEST, POSITIONS, Case
from tests.reference.reference_heads import ReferenceDrafter, mtp_logits_of
from tests.reference.reference_model import Fed, ReferenceModel
from tests.synthetic.tiny_configs import FAMILIES

NAMES = [case.name for case in CASES]


def agree(ours: NDArray[np.float64], theirs: NDArray[np.float32]) -> None:
    """Raise AssertionError unless logits are close and their best tokens the same."""
    assert np.abs(ours - theirs).max() <= LARGEST
    assert np.array_equal(ours.argmax(axis=1), theirs.argmax(axis=1))


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.slow
def test_logits_of_model_and_draft_head_equal_the_kept_ones_of_each_library(case: Case, tmp_path: Path) -> None:
    model, fed, theirs = case.model(tmp_path), Fed(), kept(case.name)
    ours = np.stack([model.feed(fed, token) for token in oracles.tokens()])[list(POSITIONS)]
    assert set(theirs) == {*case.oracles, *(["mtp"] if case.head else [])} != set()
    for library in case.oracles:
        agree(ours, theirs[library])
    if case.head:
        agree(mtp_logits_of(model, fed)[list(POSITIONS)], theirs["mtp"])


def test_every_family_and_every_head_is_compared_as_published_and_as_converted() -> None:
    for family in FAMILIES:
        mine = [case for case in CASES if case.family == family and not case.changes]
        assert {"hf", "mlx"} <= {case.form for case in mine}
        assert any(case.affine for case in mine)
        assert any(case.head for case in mine) == (mine[0].plan.mtp is not None)


def test_a_drafted_block_equals_the_kept_one_at_every_edge_of_its_window(tmp_path: Path) -> None:
    case = DrafterCase.of(tmp_path)
    # The target is not read: rows of taps and of the block are given.
    drafter = ReferenceDrafter(case.plan, case.reader, target=ReferenceModel(CASES[0].plan, case.reader))
    theirs = kept("dflash2")
    for context in (context for context in CONTEXTS if context):
        taps, rows = case.rows(context)
        ours = drafter.hidden(drafter.context_of_taps(taps), rows, context)
        assert np.abs(ours - theirs[f"context_{context}"]).max() <= LARGEST / 10


@pytest.mark.slow
def test_the_libraries_still_give_the_kept_logits(tmp_path: Path) -> None:
    reason = oracles.lacking()
    if reason is not None:
        pytest.skip(reason)
    for case in CASES:
        here = made(case, tmp_path / case.name)
        for name, rows in kept(case.name).items():
            assert np.abs(here[name] - rows).max() <= LARGEST / 10, (case.name, name)
