"""Breaking a rule of the port on purpose: the call must raise and leave the lane where it stood."""

from __future__ import annotations

from collections.abc import Callable

from tensorfold.application.ports.target_model import LaneWindow, RoundBatch, Ticket
from tensorfold.domain.windows import Window, chain
from tests.contracts.candidates import refuses
from tests.contracts.target_model.rows import GREEDY, Driver, ModelSubject


def raises(subject: ModelSubject, driver: Driver, call: Callable[[], object]) -> None:
    """`call` raises, and `driver`'s lane draws as before."""
    before = driver.look(chain(1))
    refuses(call, Exception)
    assert driver.look(chain(1)) == before


def launch(driver: Driver, window: Window, position: int | None = None) -> Ticket:
    """A launch of one greedy window, at the lane's own position or another."""
    at = driver.absorbed if position is None else position
    return driver.model.launch(RoundBatch((LaneWindow(driver.lane, at, window, GREEDY),)))
