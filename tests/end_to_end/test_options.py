"""The table of `serve`'s options and the refusals of the command line, walked as a user meets them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorfold.entrypoints.cli.later_flags import LATER
from tests.end_to_end.cli_refusals import REFUSALS, Refusal, Room, refusal_faults
from tests.end_to_end.option_scene import Scene, scene
from tests.end_to_end.options import ASKING, LISTED, OPTIONS, Option, later_faults, spoken


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("servers")) as made:
        yield made


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Room:
    return Room(tmp_path_factory.mktemp("refusals") / "home")


def test_there_is_every_flag_of_the_list_and_no_other() -> None:
    assert set(spoken()) == LISTED
    assert {option.name for option in OPTIONS} | {flag.option for flag in LATER} == LISTED
    assert ASKING.keys() == {flag.option for flag in LATER}


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_help_of_an_option_has_its_default(option: Option) -> None:
    assert option.default in " ".join(spoken()[option.name].split())


@pytest.mark.slow
@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_does_what_it_says(option: Option, both: Scene) -> None:
    assert option.effect(both)


@pytest.mark.slow
@pytest.mark.parametrize("option", [each for each in OPTIONS if each.override], ids=lambda option: option.name)
def test_a_request_stands_above_an_option(option: Option, both: Scene) -> None:
    assert option.override is not None and option.override(both)


def test_flags_of_parts_that_are_not_there_and_of_the_other_backend_are_refused_by_name() -> None:
    assert later_faults() == []


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
@pytest.mark.slow
def test_the_command_line_refuses_in_one_line_with_its_exit_code(refusal: Refusal, room: Room) -> None:
    assert refusal_faults(refusal, room) == []
