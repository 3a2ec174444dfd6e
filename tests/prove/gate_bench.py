"""Replies under gates of one hash model: serial by a plain loop, then drafted beside others through the real scheduler.

Cases of `tests.prove.grammar` and the cell of given-up lanes run here. Knows no schema and no cell.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.grammar.compiler import GuidanceCompiler
from tensorfold.application.ports.services import GrammarMatcher
from tensorfold.application.replies import Ended, GenerationRequest
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.reply_form import THINK
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.gates.thought_end import ThoughtEnd
from tensorfold.domain.sampling import Sampling
from tests.application.house import read, serving
from tests.fakes.draft_sources import OracleSource
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialReply, serial_reference
from tests.fakes.steered import PieceTokenizer, SteeredLaw, steered

MOST = 400
"""Tokens of a reply."""
_SAMPLINGS = (Sampling(), Sampling(3, 1.0), Sampling(5, 0.8, 40, 0.95, 0.02))
_ENDS = frozenset({PieceTokenizer().end_id})


@dataclass(slots=True)
class Case:
    """One request, its matcher at the start (None: a budget alone) and, once asked for, its serial reply."""

    request: GenerationRequest
    matcher: GrammarMatcher | None
    expected: SerialReply = field(default_factory=lambda: SerialReply((), "length"))


@dataclass(slots=True)
class Tally:
    """What was compared; `dropped` are lanes that were given up on the way."""

    tokens: int = 0
    replies: int = 0
    differences: int = 0
    invalid: int = 0
    cut: int = 0
    unjudged: int = 0
    dropped: int = 0
    first: str = ""

    def differ(self, what: str) -> None:
        self.differences += 1
        self.first = self.first or what


class Untried(GuidanceCompiler):
    """Compiles without the trial in a process of its own, which has tests of its own and costs most of the time."""

    def _verdict(self, kind: str, source: str) -> str:
        return ""


class Bench:
    """Replies of one hash model: serial by a plain loop, then drafted beside others through the real scheduler."""

    def __init__(self, salt: int, weights: dict[str, float] | None = None) -> None:
        self.tokenizer = PieceTokenizer()
        self.compiler = Untried(self.tokenizer, _ENDS)
        self.law = steered(self.tokenizer, salt, weights)
        self.rng = random.Random(salt)

    def case(self, matcher: GrammarMatcher | None, *, thinks: bool = False, budget: int = 0) -> Case:
        """A request with a prompt and a way of drawing of its own."""
        rng, tokenizer = self.rng, self.tokenizer
        thought = ThoughtEnd(tokenizer.token_bytes, THINK) if thinks else None
        close = "\n</think>" if matcher is not None else "\n</think>\n\n"
        constraint = None if matcher is None else Constraint(matcher.copy(), tokenizer.vocabulary, _ENDS, thought)
        request = GenerationRequest(
            tuple(rng.randrange(tokenizer.vocabulary) for _ in range(rng.randrange(1, 12))),
            rng.choice(_SAMPLINGS),
            MOST,
            stop_ids=_ENDS,
            thoughts=THINK if thinks else None,
            in_thought=thinks,
            thinking_budget=budget,
            thought_close=tuple(tokenizer.encode(close)),
            constraint=constraint,
        )
        return Case(request, matcher)

    def expect(self, case: Case) -> None:
        """Work out the serial reply."""
        case.expected = _serial(self.law, self.tokenizer, case)

    def compare(self, cases: Sequence[Case], tally: Tally) -> None:
        """Run all cases together, drafted, and count what is not the serial reply."""
        model = HashModel(self.law, chain_width=self.rng.choice((3, 8, 16)), tree_width=self.rng.choice((1, 9, 16)))
        settings = EngineSettings(parallel=8, queue=len(cases), force_windows=self.rng.random() < 0.8)
        with self.server(model, settings) as scheduler:
            going = [self._start(scheduler, number, case) for number, case in enumerate(cases)]
            for case, generation in zip(cases, going, strict=True):
                got = read(generation)
                tally.replies += 1
                tally.tokens += len(got.ids)
                if tuple(got.ids) != case.expected.tokens or not isinstance(got.end, Ended):
                    tally.differ(f"{got.end} {self.tokenizer.decode(got.ids)[:200]!r}")
        tally.dropped += scheduler.counters.dropped
        if model.misuses:
            tally.differ(f"the engine broke the model's port: {model.misuses[0]}")

    def _start(self, scheduler: Scheduler, number: int, case: Case) -> Any:
        expected = case.expected.tokens
        source = OracleSource(number, expected, self.tokenizer.vocabulary, hits=(self.rng.choice((0.5, 0.9, 1.0)),))
        return scheduler.submit(replace(self.asked(number, case), draft=self.rng.random() < 0.9), source)

    @contextmanager
    def server(self, model: HashModel, settings: EngineSettings) -> Iterator[Scheduler]:
        """A scheduler over the model."""
        known = self.tokenizer.token_bytes
        with serving(model, settings=settings, sources=(CopySourceFactory(),), token_bytes=known) as scheduler:
            yield scheduler

    def asked(self, number: int, case: Case) -> GenerationRequest:
        """How a case's request, the `number`th of its company, is put."""
        return case.request


def _serial(law: SteeredLaw, tokenizer: PieceTokenizer, case: Case) -> SerialReply:
    """The reply by the plain loop, its thought followed in the bytes of the whole reply."""
    request, vocabulary = case.request, tokenizer.vocabulary
    matcher = None if case.matcher is None else case.matcher.copy()
    seen, thought, fed = b"", request.in_thought, 0

    def follow(emitted: Sequence[int]) -> None:
        nonlocal seen, thought, fed
        for token in emitted[fed:]:
            if thought:
                seen += tokenizer.token_bytes.of(token)
                thought = b"</think>" not in seen
            elif matcher is not None:
                matcher.advance((token,))
            fed += 1

    def allow(emitted: Sequence[int]) -> NDArray[np.uint32] | None:
        follow(emitted)
        if matcher is None:
            return None
        if not thought:
            return matcher.mask()
        bits = np.ones((vocabulary + 31) // 32 * 32, dtype=np.uint8)
        bits[tokenizer.end_id] = 0
        return np.packbits(bits, bitorder="little").view(np.uint32)

    def fix(emitted: Sequence[int], token: int) -> Sequence[int] | None:
        follow(emitted)
        over = request.thinking_budget and len(emitted) + 1 >= request.thinking_budget
        return request.thought_close if over and thought else None

    return serial_reference(law, request.prompt, MOST, request.sampling, _ENDS, fix=fix, allow=allow)
