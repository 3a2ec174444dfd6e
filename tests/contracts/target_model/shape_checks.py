"""Shapes: a pedantic model raises on windows and masks that the domain would never make, and on keeping unread rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tensorfold.application.ports.target_model import RoundBatch
from tensorfold.domain.windows import Window, chain
from tests.contracts.candidates import refuses
from tests.contracts.target_model.misuse import launch, raises
from tests.contracts.target_model.rows import GREEDY, ModelSubject, driving


def rows_are_not_kept_before_they_are_collected(subject: ModelSubject) -> None:
    """A path needs draws."""
    with driving(subject, [1, 2, 3]) as (driver,):
        before = driver.look(chain(1))
        ticket = launch(driver, chain(1))
        refuses(lambda: subject.model.keep(ticket, [(0,)]), Exception)
        subject.model.discard(ticket)
        assert driver.look(chain(1)) == before


def misshapen_windows_and_masks_raise(subject: ModelSubject) -> None:
    """Parents that come later, forced rows with branches, masks of another size, dtype or without a bit."""
    words = (subject.model.limits.vocabulary + 31) // 32
    full = np.full(words, 0xFFFFFFFF, dtype=np.uint32)
    longer = np.concatenate([full, full[:1]])
    bad: tuple[Any, ...] = (longer, full[:-1], full.astype(np.uint64), np.zeros_like(full))
    with driving(subject, [1, 2, 3]) as (driver,):
        for window in (
            Window((1, 2, 3), (-1, 2, 1)),
            Window((1, 2, 3), (-1, 0)),
            Window((1, 2, 3), (0, 0, 1)),
            Window((), ()),
            Window((1, 2, 3), (-1, 0, 0), 2),
            Window((1, 2, 3), (-1, 0, 0), 1),
            Window((1, 2), (-1, 0), 2),
        ):
            raises(subject, driver, partial(launch, driver, window))
        for mask in bad:
            masked = RoundBatch((driver.window(chain(1), GREEDY, (mask,)),))
            raises(subject, driver, partial(subject.model.launch, masked))
        short = driver.window(chain(1), GREEDY, ())
        raises(subject, driver, lambda: subject.model.launch(RoundBatch((short,))))
        raises(subject, driver, lambda: subject.model.launch(RoundBatch(())))
