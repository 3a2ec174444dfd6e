"""The record's page: what it says of flags, figures, bytes and the policy is what the code has."""

from __future__ import annotations

import re
from dataclasses import fields
from fractions import Fraction

import numpy as np
import pytest

from tensorfold.adapters.filesystem.record_format import encode
from tensorfold.adapters.filesystem.record_store import LEAST_FREE_BYTES
from tensorfold.adapters.filesystem.record_tail import IDLE_S, MOST_UNSETTLED_S
from tensorfold.application.recall import MOST_QUEUED_BYTES, MOST_RUNS
from tensorfold.application.settings import RecallSettings
from tensorfold.domain.drafting.landing import DECAY, DEPTHS, PRIOR_TRIALS
from tensorfold.domain.recall.chunks import CHUNK_MEMORY_BYTES
from tensorfold.domain.recall.edits import EDIT_IDS, MOST_EDITS
from tensorfold.domain.recall.layout import (
    CHUNK_BYTES,
    CHUNK_IDS,
    HELD_IDS,
    KEY_IDS,
    LEAD_IDS,
    LEAST_CHUNKS,
    LEAST_RUN,
    MOST_CHUNKS,
    SEPARATOR,
    TAIL_IDS,
)
from tensorfold.domain.recall.policy import OfferSettings
from tensorfold.domain.recall.rates import CLASSES, NAMES, RESUMED
from tensorfold.domain.recall.resync import EVIDENCE
from tests.command_pages import flags
from tests.entrypoints.http.test_recall import SHOWN
from tests.test_docs import rows, text

PAGE = text("docs/recall.md")
WORDS = " ".join(PAGE.split())
GIB = 1 << 30
BUDGET = RecallSettings().budget_bytes


def test_every_flag_of_the_record_is_described() -> None:
    described = [cells[0].strip("`").split()[0] for cells in rows(PAGE, "| Flag | Meaning |")]
    assert described == [action.option_strings[0] for group, action in flags("serve") if group == "recall"]


def test_every_member_of_its_figures_is_described() -> None:
    members = [cells[0] for cells in rows(text("docs/api.md"), "| Member | Value |")]
    assert re.findall(r"`(\w+)`", " ".join(members)) == list(SHOWN)


def test_the_settings_of_the_policy_are_those_of_the_code() -> None:
    stated = {cells[0].strip("`"): float(cells[1]) for cells in rows(PAGE, "| Setting | Value | Meaning |")}
    assert stated == {field.name: field.default for field in fields(OfferSettings) if field.name != "eager"}


def test_the_classes_and_their_priors_are_those_of_the_code() -> None:
    table = list(rows(PAGE, "| Class | First id | Each later id |"))
    stated = [(name.strip("`"), float(first), float(later)) for name, first, later in table]
    assert stated == [(name, c.first, c.later) for name, c in zip(NAMES, (*CLASSES, RESUMED), strict=True)]
    assert [c.least for c in CLASSES] == [KEY_IDS, 32, 64]


def test_what_lets_a_broken_copy_go_on_is_that_of_the_code() -> None:
    table = rows(PAGE, "| Ids that match | From before the break | To behind it | Only where alone |")
    stated = [(int(ids), int(before), int(behind), alone == "yes") for ids, before, behind, alone in table]
    assert stated == [tuple(evidence) for evidence in EVIDENCE]


def test_the_bytes_shown_are_the_bytes_written() -> None:
    shown = re.search(r"So the ids 5, 0, 7 as one piece .*?```\n(.+?)\n```", PAGE, re.DOTALL)
    assert shown is not None
    assert bytes.fromhex(shown.group(1)) == encode(np.array([5, 0, 7, SEPARATOR], np.int32), 32_000)


@pytest.mark.parametrize(
    "words",
    [
        f"at most {CHUNK_IDS:,} values of 4 bytes",
        f"whole chunks of {CHUNK_BYTES >> 20} MiB",
        f"`{Fraction(BUDGET, GIB)}` ({BUDGET >> 20} MiB, ",
        f"From `{Fraction(LEAST_CHUNKS * CHUNK_BYTES, GIB)}` (two chunks,",
        f"to {MOST_CHUNKS * CHUNK_BYTES // GIB} (places in the record are numbered in 31 bits)",
        f"less than {LEAST_FREE_BYTES // GIB} GiB of disk are free",
        f"more than {MOST_RUNS} runs or {MOST_QUEUED_BYTES >> 20} MiB behind",
        f"Stretches of {HELD_IDS} or more ids",
        f"up to {LEAD_IDS} ids that were there already",
        f"and up to {TAIL_IDS} after it",
        f"fewer than {LEAST_RUN} ids is of no use",
        f"behind the last {LEAD_IDS} ids of its first part",
        f"made durable {IDLE_S:g} seconds after the last piece, at most {MOST_UNSETTLED_S:g} seconds after the first",
        f"takes {CHUNK_MEMORY_BYTES >> 20} MiB for each chunk",
        f"the stream's last {KEY_IDS} ids or more",
        f"the first id, ids {DEPTHS[1]} to {DEPTHS[2] - 1}, {DEPTHS[2]} to {DEPTHS[3] - 1}, and deeper ones",
        f"a prior that weighs as much as {PRIOR_TRIALS:g} ids",
        f"is weighed {DECAY} times as much",
        f"Up to {MOST_EDITS} edits of at most {EDIT_IDS} ids are remembered",
    ],
)
def test_the_page_has_the_figures_of_the_code(words: str) -> None:
    assert words in WORDS
