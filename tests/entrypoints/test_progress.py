"""How far a download is: lines some seconds apart, or a bar that gives way to every line."""

from __future__ import annotations

import io

import pytest

from tensorfold.application.ports.checkpoints import Transfer
from tensorfold.entrypoints.cli.progress import Progress, size
from tests.fakes.clock import FakeClock

GB = 1_000_000_000


class Terminal(io.StringIO):
    """A terminal, as text."""

    def isatty(self) -> bool:
        return True


def test_elsewhere_a_line_comes_every_five_seconds_and_at_the_end() -> None:
    said: list[str] = []
    clock = FakeClock()
    progress = Progress("org/model", said.append, clock=clock.monotonic)
    for second in range(21):
        progress.moved(Transfer(second * GB, 20 * GB))
        clock.advance(1.0)
    assert said == [
        "org/model: 25%, 5.00 GB of 20.00 GB, 1.00 GB/s, 0:15 left",
        "org/model: 50%, 10.00 GB of 20.00 GB, 1.00 GB/s, 0:10 left",
        "org/model: 75%, 15.00 GB of 20.00 GB, 1.00 GB/s, 0:05 left",
        "org/model: 100%, 20.00 GB of 20.00 GB, 1.00 GB/s",
    ]


def test_what_is_here_already_says_nothing() -> None:
    said: list[str] = []
    clock = FakeClock()
    progress = Progress("org/model", said.append, clock=clock.monotonic)
    for _ in range(9):
        progress.moved(Transfer(5, 5))
        clock.advance(9.0)
    assert said == []


def test_a_terminal_gets_a_bar_that_gives_way_to_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    said: list[str] = []
    clock, terminal = FakeClock(), Terminal()
    with Progress("org/model", said.append, terminal, clock.monotonic) as progress:
        progress.moved(Transfer(0, 4 * GB))
        clock.advance(0.1)
        progress.moved(Transfer(GB // 10, 4 * GB))
        assert terminal.getvalue() == ""
        clock.advance(0.9)
        progress.moved(Transfer(GB, 4 * GB))
        bar = terminal.getvalue().removeprefix("\r\x1b[2K")
        assert bar.startswith("org/model  [###") and bar.endswith("]  25%  1.00 GB of 4.00 GB  1.00 GB/s, 0:03 left")
        assert len(bar) < 90
        progress.say("a line")
        assert said == ["a line"] and terminal.getvalue().endswith("\r\x1b[2K")
        clock.advance(1.0)
        progress.moved(Transfer(2 * GB, 4 * GB))
    assert terminal.getvalue().endswith("\r\x1b[2K") and len(said) == 1


def test_a_narrow_terminal_gets_the_figures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    clock, terminal = FakeClock(), Terminal()
    progress = Progress("org/model", lambda line: None, terminal, clock.monotonic)
    progress.moved(Transfer(0, 4))
    clock.advance(1.0)
    progress.moved(Transfer(2, 4))
    assert terminal.getvalue() == "\r\x1b[2Korg/model  50%  2 bytes of 4 "


def test_a_terminal_that_is_gone_ends_nothing() -> None:
    clock, terminal = FakeClock(), Terminal()
    progress = Progress("org/model", lambda line: None, terminal, clock.monotonic)
    progress.moved(Transfer(0, 4))
    terminal.close()
    clock.advance(1.0)
    progress.moved(Transfer(2, 4))
    progress.close()


SIZES = ((0, "0 bytes"), (999, "999 bytes"), (1000, "1.00 kB"), (98_275_968, "98.28 MB"), (17.03e9, "17.03 GB"))


@pytest.mark.parametrize(("count", "words"), SIZES)
def test_bytes_are_told_in_decimal_units(count: float, words: str) -> None:
    assert size(count) == words
