"""Signals that ask for the end: counted in any number, waited for, and raised only where that is allowed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tensorfold.entrypoints.cli.signals import EndAskedError, Signals


@pytest.fixture(autouse=True)
def handlers_restored() -> Iterator[None]:
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_a_further_one_asks_again(number: int) -> None:
    signals = Signals()
    assert (signals.asked, signals.again) == (False, False)
    send(number)
    signals.wait()
    assert (signals.asked, signals.again) == (True, False)
    send()
    assert (signals.asked, signals.again) == (True, True)


def test_a_signal_breaks_off_only_the_part_that_allows_it_and_only_once() -> None:
    signals = Signals()
    cleaned = []
    with pytest.raises(EndAskedError), signals.interrupting():
        try:
            send()
        finally:
            send()
            cleaned.append(True)
    assert cleaned and signals.again
    send()


def test_a_signal_that_came_before_breaks_the_part_off_at_its_start() -> None:
    signals = Signals()
    send()
    reached = []
    with pytest.raises(EndAskedError), signals.interrupting():
        reached.append(True)
    assert not reached


def test_a_part_that_ends_by_itself_leaves_later_signals_alone() -> None:
    signals = Signals()
    with signals.interrupting():
        pass
    send()
    assert signals.asked


def test_what_breaks_off_is_no_bare_keyboard_interrupt_which_would_end_the_process_by_the_signal() -> None:
    assert issubclass(EndAskedError, KeyboardInterrupt) and EndAskedError is not KeyboardInterrupt


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="this system has no SIGUSR1")
def test_the_signal_for_stacks_asks_for_nothing_else() -> None:
    told: list[str] = []
    signals = Signals()
    signals.on_stacks(told.append)
    send(signal.SIGUSR1)
    assert len(told) == 1 and not signals.asked
