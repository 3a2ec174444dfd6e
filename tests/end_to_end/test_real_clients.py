"""The checks of real client libraries, with the one that is here; `python -m tests.end_to_end.real_clients` has all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.real_clients import __main__ as command
from tests.end_to_end.real_clients.checks import CHECKS, Reply, Room, same
from tests.end_to_end.real_clients.documented import TITLES, FaultError, blocks
from tests.end_to_end.real_clients.door import door
from tests.end_to_end.real_clients.driver import MODULES, Said, driven
from tests.end_to_end.real_clients.environment import PINS
from tests.end_to_end.real_clients.house import house

pytestmark = pytest.mark.slow

WAITING = ("503 full, Retry-After 5", "always 503, Retry-After 1", "bare")
"""Checks in which a library waits before it tries again."""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    folder = tmp_path_factory.mktemp("clients")
    with (
        house("tiny", folder) as served,
        door() as knocked,
        driven("openai", Path(sys.executable), folder) as driver,
    ):
        yield Room(driver, served, knocked)


@pytest.mark.parametrize("title", [title for title in CHECKS if not title.startswith(WAITING)])
def test_a_library_shows_of_a_served_model_what_it_must(room: Room, title: str) -> None:
    assert CHECKS[title](room)


@pytest.mark.parametrize(
    "said",
    [
        Said("one tw", "length", (5, 6)),
        Said("one two", "stop", (5, 6)),
        Said("one two", "length", (5, 7)),
        Said("one two", "length", None),
        Said(kind="APIError", message="broken"),
    ],
    ids=("text", "finish", "usage", "no usage", "an error"),
)
def test_a_reply_that_is_not_the_wanted_one_is_a_fault(said: Said) -> None:
    wanted = Reply("one two", "length", (5, 6))
    same(Said("one two", "length", (5, 6)), wanted)
    same(Said("one two", None, (5, 6)), wanted)
    with pytest.raises(FaultError):
        same(said, wanted)


def test_every_library_has_a_version_a_driver_and_a_page() -> None:
    assert set(PINS) == set(MODULES) == set(TITLES)
    for title in TITLES.values():
        assert any(language in ("python", "bash") for language, _ in blocks(title))


def test_a_run_without_its_libraries_fails_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A version that pip cannot read: it asks nobody.
    monkeypatch.setattr(command, "PINS", {"openai": "not-a-version"})
    assert command.main(["--model", "tiny"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("-- openai not-a-version could not be installed: ")
    assert said[-1].startswith("FAILED: 0 of 1 client libraries installed, 0 checks on tiny, 1 faults")


def test_a_server_with_one_lane_does_not_speak_of_shared_rounds(room: Room) -> None:
    assert "streams: up to 1, they come one after another, " in room.house.server.wait_for("streams: ")
