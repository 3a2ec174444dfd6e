"""Gated delta steps on the CPU in float32: they read rings, schedules and states by address, as the kernel does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.cuda.rows import COMMIT, RESET, RETURN, SAVE
from tensorfold.kernels.cuda.delta_steps import Form, Steps
from tests.adapters.cuda.host_launches import at_address

Floats = NDArray[np.float32]


class HostDelta:
    """Stands in for `DeltaKernels`: rows and results are float32. `expected` are forms and the most lanes of them.

    A launch that was not said early is refused, since on a card it would be compiled in a round.
    """

    def __init__(self) -> None:
        self.expected: dict[Form, int] = {}

    def expect(self, form: Form, lanes: int) -> None:
        self.expected[form] = max(lanes, self.expected.get(form, 0))

    def launch(self, form: Form, steps: Steps, stream: int, early: bool) -> None:
        assert form.wide and 1 <= steps.programs <= self.expected[form]
        lanes = at_address(steps.lanes, (steps.programs,), np.int32).tolist() if steps.by_row else range(steps.programs)
        for lane in dict.fromkeys(lanes):
            _run(form, steps, lane)


def _run(form: Form, steps: Steps, lane: int) -> None:
    """The steps of one lane slot."""
    size = form.heads * form.keys * form.values * 4
    count = int(at_address(steps.counts + 4 * lane, (1,), np.int32)[0])
    schedule = at_address(steps.schedule + 12 * steps.most * lane, (steps.most, 3), np.int32)[:count]
    committed, aside = (
        at_address(steps.state + place * size, (form.heads, form.keys, form.values), np.float32)
        for place in at_address(steps.places + 8 * lane, (2,), np.int32).tolist()
    )
    now = committed.copy()
    for at, (source, target, flags) in enumerate(schedule.tolist()):
        if at and flags & (RESET | RETURN):
            now = (aside if flags & RETURN else committed).copy()
        assert 0 <= source < steps.ring
        result, now = _step(form, steps, lane * steps.ring + source, now)
        if target >= 0:
            at_address(steps.out + target * result.nbytes, result.shape, np.float32)[:] = result
        if flags & COMMIT:
            committed[:] = now
        if flags & SAVE:
            aside[:] = now


def _step(form: Form, steps: Steps, row: int, now: Floats) -> tuple[Floats, Floats]:
    """Result [H, V] and state [H, K, V] behind a row of the rings; sums are in the order of keys."""
    channels = 2 * form.key_heads * form.keys + form.heads * form.values
    mixed = at_address(steps.mixed + row * channels * 4, (channels,), np.float32)
    factors: Any = at_address(steps.factors + row * form.heads * 32, (form.heads, 8), np.float32)
    kept, kept_k, beta, scale_k, kept_q, both = factors[:, :6].T[:, :, None]
    at = form.key_heads * form.keys
    q, k = (
        part.reshape(form.key_heads, form.keys).repeat(form.heads // form.key_heads, 0)[:, :, None]
        for part in (mixed[:at], mixed[at : 2 * at])
    )
    v = mixed[2 * at :].reshape(form.heads, form.values)
    seen, asked = (now * k).sum(1), (now * q).sum(1)
    change = beta * (v - kept_k * seen)
    return kept_q * asked + both * change, now * kept[:, :, None] + k * (scale_k * change)[:, None, :]
