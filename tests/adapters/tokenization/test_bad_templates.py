"""Every bad template is refused in one line, with the renderer's memory bounded and no process left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.tokenization.bad_templates import CASES
from tests.adapters.tokenization.refuse_bad_templates import LIMITS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
WORDS_OF_LIBRARIES = ("Traceback", "Error", "jinja2.", "<template>", "unsafe attribute", "object at 0x")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """What one process saw that loaded and rendered all cases, one after another."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.adapters.tokenization.refuse_bad_templates"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / '.pkg'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert ran.stderr == ""
    report: dict[str, Any] = json.loads(ran.stdout)
    return report


@pytest.mark.parametrize("name", [name for name, _ in CASES])
def test_a_bad_template_is_refused_in_one_sentence_of_ours(report: dict[str, Any], name: str) -> None:
    outcome = report["outcomes"][name]
    assert outcome.startswith("refused: The chat template"), outcome
    assert outcome.isprintable()
    assert len(outcome) < 400
    assert not any(word in outcome for word in WORDS_OF_LIBRARIES)


def test_no_bad_template_took_more_memory_than_its_limit(report: dict[str, Any]) -> None:
    assert 0 < report["peak_bytes"] <= LIMITS.memory_bytes


def test_no_process_is_left_by_bad_templates(report: dict[str, Any]) -> None:
    assert report["left"] == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("endless loop", "ran for more than 2 s"),
        ("endless power in one operation", "ran for more than 2 s"),
        ("endless power while compiling", "ran for more than 2 s"),
        ("huge output", "output passed 1 MiB"),
        ("string bomb", "needed more than 128 MiB"),
        ("endless recursion", "too deeply at line 1"),
        ("globals of a function", "sandbox forbids at line 1"),
        ("including a file", "another template at line 1"),
        ("undefined value", "do not have at line 1"),
        ("unclosed block", "not a valid Jinja template at line 1"),
        ("a refusal of many lines", "refused the messages: line one line two"),
    ],
)
def test_the_sentence_says_what_was_wrong(report: dict[str, Any], name: str, reason: str) -> None:
    assert reason in report["outcomes"][name]
