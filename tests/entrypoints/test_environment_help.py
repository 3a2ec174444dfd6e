"""What the help says of the environment is what the pages and the settings have."""

from __future__ import annotations

import re

import pytest

from tensorfold.entrypoints.cli.environment_help import HUB, MEANINGS, READ
from tests.command_pages import COMMANDS, parser_of
from tests.test_docs import rows, text

VARIABLE = re.compile(r"\b(?:TENSORFOLD|HF|XDG)_[A-Z_]+\b")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_ends_with_what_it_reads(command: str) -> None:
    _, _, said = " ".join(parser_of(command).format_help().split()).rpartition(" Environment: ")
    assert VARIABLE.findall(said) == list(READ[command])
    assert said.endswith(".")


def test_what_serve_reads_is_what_its_page_has() -> None:
    described = {cells[0].strip("`") for cells in rows(text("docs/serve.md"), "| Variable | Meaning |")}
    assert set(READ["serve"]) == {name for name in described if VARIABLE.fullmatch(name)} | set(HUB)


def test_what_the_hub_is_asked_with_is_on_the_page_of_pull() -> None:
    described = {
        name for cells in rows(text("docs/pull.md"), "| Variable | Meaning |") for name in VARIABLE.findall(cells[0])
    }
    assert set(HUB) <= described


def test_every_command_has_its_variables_and_every_variable_a_meaning() -> None:
    assert set(READ) == set(COMMANDS)
    assert {name for names in READ.values() for name in names} == set(MEANINGS)
