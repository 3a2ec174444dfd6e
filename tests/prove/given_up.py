"""Replies under gates in too little memory: streams give their lanes up on the way and are read again with their masks.

A reply that is read again must draw what it drew, which without its masks, or with those of another place, it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tensorfold.application.replies import GenerationRequest
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.copies import CopySourceFactory
from tests.application.house import serving
from tests.application.memory_house import within
from tests.fakes.hash_model import HashModel
from tests.prove.gate_bench import MOST, Bench, Case


class Crowded(Bench):
    """A bench with room for one whole reply and a little more, whose requests name no limit; some may have to yield."""

    @contextmanager
    def server(self, model: HashModel, settings: EngineSettings) -> Iterator[Scheduler]:
        """A scheduler over the model, in memory that its streams outgrow."""
        metered, admission = within(
            model, self.rng.randrange(MOST + 60, MOST + 200), ahead=self.rng.choice((16, 24, 40))
        )
        with serving(
            metered,
            settings=settings,
            sources=(CopySourceFactory(),),
            token_bytes=self.tokenizer.token_bytes,
            admission=admission,
            max_tokens=MOST,
        ) as scheduler:
            yield scheduler

    def asked(self, number: int, case: Case) -> GenerationRequest:
        """Without a limit, for which memory would be kept free; every third one in the background."""
        return replace(case.request, max_tokens=None, background=number % 3 == 0)
