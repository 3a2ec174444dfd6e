"""`tensorfold serve` of a tiny checkpoint of each family, over HTTP: one reply in every form, its template's prompt.

Noise never calls a tool, so that a call is read out of each family's reply is proved with scripted models
(`test_families_replies.py`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.families import FLAGS, Tally, family_agrees, heads_agree
from tests.end_to_end.family_requests import TEMPLATES, WISHES, rendered


@pytest.fixture(scope="module")
def families_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


@pytest.mark.slow
def test_what_a_chat_asks_for_makes_another_prompt_in_every_template_that_reads_it() -> None:
    for family, template in TEMPLATES.items():
        prompts = {wish.name: rendered(family, wish) for wish in WISHES}
        same = {name for name, text in prompts.items() if name != "plain" and text == prompts["plain"]}
        assert same == ({"a low effort"} if template in ("nemotron", "gemma4") else set())


@pytest.mark.slow
@pytest.mark.parametrize("family", TEMPLATES)
def test_a_familys_replies_are_the_same_in_every_form_and_its_template_gets_what_is_asked_for(
    family: str, families_home: Path
) -> None:
    tally = family_agrees(families_home, family)
    assert tally.differences == [] and tally.compared >= 36


@pytest.mark.slow
def test_whatever_flag_says_what_drafts_replies_are_the_same_and_the_start_tells_of_it(families_home: Path) -> None:
    tally = heads_agree(families_home)
    assert tally.differences == [] and tally.compared >= 8 * len(FLAGS)


def test_a_difference_is_counted_and_told() -> None:
    tally = Tally()
    tally.hold("a reply", (1, 2), (1, 2))
    tally.hold("another", (1, 2), (1, 3))
    assert tally.compared == 2 and tally.differences == ["another: (1, 2) is not (1, 3)"]
