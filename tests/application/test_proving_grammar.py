"""The proof's mode of grammars passes on a sound engine and finds a mask that does not follow its row."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorfold.adapters.grammar.compiler import GuidanceCompiler
from tensorfold.application.proof import LEAST_KEPT, Report
from tensorfold.application.proving import Prover
from tensorfold.application.settings import EngineSettings
from tests.application.house import law, serving
from tests.fakes.hash_launch import DrawnRows, HashLaunch
from tests.fakes.hash_model import HashModel
from tests.fakes.tokenizer import FakeTokenizer
from tests.libraries import needs

pytestmark = [pytest.mark.slow, needs("llguidance")]

LAW = law(51, vocabulary=512)


def prove(model: HashModel, tokenizer: FakeTokenizer, said: list[str]) -> Report:
    with serving(model, settings=EngineSettings(parallel=4, force_windows=True)) as scheduler:
        compiler = GuidanceCompiler(tokenizer, frozenset({tokenizer.end_id}))
        return Prover(scheduler, tokenizer, said.append, grammars=compiler).run()


class MasksOfTheFirstRow(HashModel):
    """Masks every row of a launch as its first masked row."""

    def _gathered(self, launch: HashLaunch) -> DrawnRows:
        rows = super()._gathered(launch)
        return replace(rows, masks=[(row, rows.masks[0][1]) for row, _ in rows.masks])


def test_a_sound_engine_is_proved_under_grammars() -> None:
    said: list[str] = []
    report = prove(HashModel(LAW, prefill_slice=64), FakeTokenizer(512), said)
    row = next(row for row in report.rows if row.mode == "grammar")
    assert not row.note and row.first is None and row.kept >= LEAST_KEPT and row.compared >= 200


def test_a_mask_that_does_not_follow_its_row_is_found() -> None:
    report = prove(MasksOfTheFirstRow(LAW, prefill_slice=64), FakeTokenizer(512), [])
    assert not report.passed
    assert any(reason.startswith("grammar: ") for reason in report.reasons)


def test_a_tokenizer_that_cannot_write_the_forms_leaves_the_mode_out_and_says_so() -> None:
    said: list[str] = []
    tokenizer = FakeTokenizer(10)
    report = prove(HashModel(law(51, vocabulary=10), prefill_slice=64), tokenizer, said)
    assert all(row.mode != "grammar" for row in report.rows)
    assert any(line.startswith("grammar: left out") for line in said)
