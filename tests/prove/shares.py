"""Replies keep their share of the time while a prompt is read, by a clock that the model's calls move."""

from __future__ import annotations

import random
from typing import Any

from tensorfold.application.replies import GenerationRequest, Landed
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.sampling import Sampling
from tests.application.prompt_house import keeping
from tests.fakes.chunky_model import ChunkyModel
from tests.fakes.clock import FakeClock
from tests.fakes.paced_model import PacedModel
from tests.prove.prompts import ChunkyLaw

_WAIT_S = 120.0


class _Noting(PacedModel):
    """Calls take a fake clock's time and are written down."""

    def __init__(self, inner: ChunkyModel, clock: FakeClock, launch_s: float, row_s: float) -> None:
        super().__init__(inner, clock.advance, launch_s, row_s)
        self.calls: list[tuple[bool, float]] = []
        self._clock = clock

    def collect(self, ticket: Any) -> Any:
        before = self._clock.monotonic()
        draws = super().collect(ticket)
        self.calls.append((bool(draws.tokens), self._clock.monotonic() - before))
        return draws


def shares(seed: int, runs: int = 12) -> list[str]:
    """Where replies do not get their share of the time while a prompt is read, within a round and a slice."""
    rng, found = random.Random(f"{seed}/shares"), []
    for _ in range(runs):
        launch, row, share = rng.choice((0.01, 0.05, 0.2)), rng.choice((0.0005, 0.002)), rng.choice((0.1, 0.25, 1.0))
        clock = FakeClock()
        model = _Noting(ChunkyModel(ChunkyLaw(vocabulary=64, salt=1), prefill_slice=16), clock, launch, row)
        settings = EngineSettings(parallel=2, decode_share=share)
        with keeping(model, 0, clock=clock, settings=settings) as server:
            reply = server.scheduler.submit(
                GenerationRequest((5, 6), Sampling(), 2000, stop_ids=frozenset(), draft=False)
            )
            reply.next(_WAIT_S)
            long = GenerationRequest(tuple(rng.randrange(64) for _ in range(3001)), Sampling(), 1, stop_ids=frozenset())
            generation = server.scheduler.submit(long)
            while isinstance(generation.next(_WAIT_S), Landed):
                pass
            reply.cancel()
            while isinstance(reply.next(_WAIT_S), Landed):
                pass
        slices = [at for at, (is_round, _) in enumerate(model.calls) if not is_round][1:]
        during = model.calls[slices[0] : slices[-1] + 1]
        spent = sum(took for is_round, took in during if is_round)
        owed = share * sum(took for is_round, took in during if not is_round)
        if abs(spent - owed) > launch + share * 16 * row:
            found.append(f"replies got {spent:.2f} s beside a prompt, {owed:.2f} s were theirs (share {share:g})")
    return found
