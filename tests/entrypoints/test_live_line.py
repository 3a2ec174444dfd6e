"""The live line: what it says, that it is drawn in place, and that only a terminal ever gets it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from tensorfold.entrypoints.cli import live_line as module
from tensorfold.entrypoints.cli.lines import draw, is_terminal, put, say, warn
from tensorfold.entrypoints.cli.live_line import LiveLine, Now, live_line
from tests.entrypoints.terminals import terminal
from tests.fakes.clock import FakeClock

WIPED = "\r\x1b[2K"


def test_speeds_are_those_of_the_last_two_seconds() -> None:
    clock = FakeClock()
    line = LiveLine(clock.monotonic)
    assert line.words(Now(1, 0, 1, 0, 0, 0)) == (
        "1 connection, 0 decoding, 1 reading, 0 waiting | decode 0.0, prefill 0.0 tok/s"
    )
    for second in range(1, 9):
        clock.advance(1.0)
        said = line.words(Now(3, 2, 0, 4, 100 * second, 7000))
    assert said == "3 connections, 2 decoding, 0 reading, 4 waiting | decode 100.0, prefill 0.0 tok/s"
    clock.advance(1.0)
    assert "decode 50.0, prefill" in line.words(Now(0, 0, 0, 0, 800, 7000))
    clock.advance(30.0)
    assert "decode 0.0, prefill" in line.words(Now(0, 0, 0, 0, 800, 7000))


def test_a_line_of_a_small_server_fits_into_eighty_columns() -> None:
    clock = FakeClock()
    line = LiveLine(clock.monotonic)
    line.words(Now(0, 0, 0, 0, 0, 0))
    clock.advance(1.0)
    assert len(line.words(Now(1, 1, 0, 0, 20, 0))) < 80


def test_a_reading_at_the_same_moment_has_no_speed() -> None:
    line = LiveLine(FakeClock().monotonic)
    line.words(Now(0, 0, 0, 0, 0, 0))
    assert "decode 0.0, prefill" in line.words(Now(0, 0, 0, 0, 9, 9))


def test_what_is_said_goes_above_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal() as place:
        monkeypatch.setattr(sys, "stdout", place.stream)
        say("before")
        draw("one")
        say("between")
        draw("two")
        put("plain")
        draw("")
        say("after")
        assert place.seen("after\n") == (
            f"[tensorfold] before\n{WIPED}one{WIPED}[tensorfold] between\n{WIPED}two{WIPED}plain\n{WIPED}"
            "[tensorfold] after\n"
        )


def test_a_warning_on_the_same_terminal_goes_above_it_and_one_in_a_file_stays_plain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with terminal() as place, open(tmp_path / "err", "w") as errors:
        monkeypatch.setattr(sys, "stdout", place.stream)
        monkeypatch.setattr(sys, "stderr", errors)
        draw("live")
        warn("in the file")
        monkeypatch.setattr(sys, "stderr", place.stream)
        warn("above")
        draw("")
        assert place.seen(f"above\n{WIPED}") == f"{WIPED}live{WIPED}[tensorfold] above\n{WIPED}"
    assert (tmp_path / "err").read_text() == "[tensorfold] in the file\n"


def test_a_file_gets_lines_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open(tmp_path / "out", "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        draw("live")
        say("line")
        draw("")
    assert (tmp_path / "out").read_text() == "[tensorfold] line\n"


def test_a_closed_stream_is_no_terminal() -> None:
    with terminal() as place:
        assert is_terminal(place.stream)
    assert not is_terminal(place.stream)


def test_the_line_is_drawn_again_in_place_cut_to_the_terminal_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REDRAW_S", 0.001)
    monkeypatch.setenv("COLUMNS", "21")
    drawn = threading.Semaphore(0)

    def read() -> Now:
        drawn.release()
        return Now(2, 1, 0, 0, 0, 0)

    with terminal() as place:
        monkeypatch.setattr(sys, "stdout", place.stream)
        with live_line(read):
            for _ in range(3):
                assert drawn.acquire(timeout=60)
        say("end")
        said = place.seen("end\n")
    parts = said.split(WIPED)
    assert parts[0] == "" and parts[-1] == "[tensorfold] end\n"
    assert set(parts[1:-1]) == {"2 connections, 1 dec"}


def test_a_reading_that_fails_ends_the_line_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REDRAW_S", 0.001)
    read = threading.Event()

    def broken() -> Now:
        read.set()
        raise RuntimeError

    with live_line(broken):
        assert read.wait(60)
