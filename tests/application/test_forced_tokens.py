"""Tokens that a gate fixes are fed, not drawn, and drafts go on behind them; the reply is the serial one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tensorfold.application.replies import GenerationRequest
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.gates.gate import Cut
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.streams import Stream
from tests.application.house import law, read, request, serving
from tests.fakes.draft_sources import OracleSource
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase, serial_reference

FIX = (7, 8, 9, 10)


class Fixing:
    """At the `at`-th token of the reply, FIX stands instead of what was drawn."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0

    def scan(self, tokens: Sequence[int]) -> Cut | None:
        index = self.at - self.seen
        return Cut(index, FIX) if 0 <= index < len(tokens) and tokens[index] != FIX[0] else None

    def observe(self, tokens: Sequence[int]) -> None:
        self.seen += len(tokens)

    def room(self) -> int | None:
        return None


@pytest.mark.parametrize("at", [0, 1, 5, 20, 37])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(4, 1.0)])
@pytest.mark.parametrize("width", [1, 2, 3, 16])
def test_a_reply_with_fixed_tokens_is_the_serial_one(
    at: int, sampling: Sampling, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    the_law = law(61, habit=0.5)
    case = SerialCase((1, 2, 3), 40, sampling)

    def fix(emitted: Sequence[int], token: int) -> tuple[int, ...] | None:
        return FIX if len(emitted) == at and token != FIX[0] else None

    expected = serial_reference(the_law, case.prompt, 40, sampling, fix=fix)
    model = HashModel(the_law, chain_width=width, audit=True)
    settings = EngineSettings(force_windows=True)
    with serving(model, settings=settings, sources=(CopySourceFactory(),)) as scheduler:
        monkeypatch.setattr(scheduler.factory, "stream", fixing(scheduler.factory.stream, at))
        source = OracleSource(3, expected.tokens, 64, hits=(0.9,))
        got = read(scheduler.submit(request(case, audit=True), source))
        assert scheduler.counters.retries == 0
    assert tuple(got.ids) == expected.tokens
    assert len(got.prints) == len(got.ids)
    assert not model.misuses
    (trail,) = model.trails().values()
    assert np.array_equal(trail.absorbed, case.prompt + expected.tokens[:-1])
    assert width == 1 or any(kept for _, drafted, kept, _ in source.observed if drafted)


def fixing(make: Callable[[GenerationRequest], Stream], at: int) -> Callable[[GenerationRequest], Stream]:
    """Streams as `make` gives them, each with the gate."""

    def stream(asked: GenerationRequest) -> Stream:
        made = make(asked)
        made._gates = (Fixing(at),)
        return made

    return stream
