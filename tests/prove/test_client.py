"""A short conversation of OpenAI's client, and that the proof of long ones notices what it is there to notice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorfold.domain.prompts import retained
from tensorfold.domain.prompts.chunks import ChunkPlan
from tests.libraries import needs
from tests.prove.client import FORMS, Said, Tally, converse, formed

pytestmark = [pytest.mark.slow, needs("llguidance")]


def test_a_conversation_with_an_edit_is_one_reply_however_it_is_asked() -> None:
    tally = Tally()
    converse("json", 6, 1, tally)
    assert not tally.faults
    assert (tally.turns, tally.edits, tally.requests) == (6, 1, 24) and tally.calls and tally.answers
    assert 0 < tally.cached < tally.prompt


def test_a_prompt_resumed_past_an_edit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fits(kept: Any, starts: Any, ids: Any, plan: ChunkPlan) -> bool:
        half = len(kept) // 2
        return plan.cuts_at(len(kept)) and bool(np.array_equal(kept[:half], ids[:half]))

    monkeypatch.setattr(retained, "fits_plan", fits)
    tally = Tally()
    converse("json", 6, 1, tally)
    assert tally.faults


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (1, Said("", (), "tool_calls", (1, 1))),
        (1, Said("text", (("now", "{}"),), "tool_calls", (1, 1))),
        (1, Said("", (("now", "{}"),), "stop", (1, 1))),
        (1, Said("", (("unknown", "{}"),), "tool_calls", (1, 1))),
        (1, Said("", (("find_files", '{"limit": 3}'),), "tool_calls", (1, 1))),
        (2, Said('{"kind": "file"}', (), "stop", (1, 1))),
        (2, Said("{}", (), "length", (1, 1))),
        (3, Said("", (("now", "{}"),), "tool_calls", (1, 1))),
    ],
)
def test_a_reply_without_the_form_that_was_asked_for_is_a_fault(form: int, said: Said) -> None:
    assert formed(said, FORMS[form], Tally())
