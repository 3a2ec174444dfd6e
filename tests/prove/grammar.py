"""The proof of gates: replies under schemas, forced calls and budgets are valid, and drafted and shared ones serial.

The command takes the schemas of a public test suite, each with a reply of a hash model that is steered to end, and its
last line has the figures. Cells of random grammars, forced calls and budgets are run by the proof of conversations.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.grammar.compiler import GuidanceCompiler
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.services import GrammarMatcher
from tensorfold.application.replies import Ended, GenerationRequest
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.reply_form import THINK
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.gates.grammar import json_schema
from tensorfold.domain.gates.thought_end import ThoughtEnd
from tensorfold.domain.sampling import Sampling
from tests.application.house import read, serving
from tests.fakes.draft_sources import OracleSource
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialReply, serial_reference
from tests.fakes.steered import PieceTokenizer, SteeredLaw, steered
from tests.prove.calls import forced
from tests.prove.schemas import DRAFTS, AbsentError, Listed, suite

LEAST_SCHEMAS = 300
_MOST = 400
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
    """What was compared."""

    tokens: int = 0
    replies: int = 0
    differences: int = 0
    invalid: int = 0
    cut: int = 0
    unjudged: int = 0
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
            _MOST,
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
        sources = (CopySourceFactory(),)
        with serving(model, settings=settings, sources=sources, token_bytes=self.tokenizer.token_bytes) as scheduler:
            going = [self._start(scheduler, number, case) for number, case in enumerate(cases)]
            for case, generation in zip(cases, going, strict=True):
                got = read(generation)
                tally.replies += 1
                tally.tokens += len(got.ids)
                if tuple(got.ids) != case.expected.tokens or not isinstance(got.end, Ended):
                    tally.differ(f"{got.end} {self.tokenizer.decode(got.ids)[:200]!r}")
        if model.misuses:
            tally.differ(f"the engine broke the model's port: {model.misuses[0]}")

    def _start(self, scheduler: Scheduler, number: int, case: Case) -> Any:
        expected = case.expected.tokens
        source = OracleSource(number, expected, self.tokenizer.vocabulary, hits=(self.rng.choice((0.5, 0.9, 1.0)),))
        return scheduler.submit(replace(case.request, draft=self.rng.random() < 0.9), source)


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

    return serial_reference(law, request.prompt, _MOST, request.sampling, _ENDS, fix=fix, allow=allow)


# -- the suite ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SuiteFigures:
    """How the suite's schemas fared."""

    listed: int = 0
    held: int = 0
    distinct: int = 0
    refused: int = 0
    valid: int = 0
    valid_texts: int = 0
    """Different schemas among those with a valid reply."""
    wrong: list[str] = field(default_factory=list)


def schemas(listed: Sequence[Listed], tally: Tally, salt: int = 1) -> SuiteFigures:
    """Replies under every schema that can be held: valid by its draft, and drafted ones the serial ones."""
    figures, bench, held = SuiteFigures(listed=len(listed)), Bench(salt), list[tuple[Listed, Case]]()
    for each in listed:
        grammar = json_schema(each.schema)
        try:
            matcher = bench.compiler.compile(str(grammar.kind), grammar.text)
        except RefusedError:
            figures.refused += 1
            continue
        case = bench.case(matcher)
        bench.expect(case)
        held.append((each, case))
    figures.held, figures.distinct = len(held), len({each.text for each, _ in held})
    for at in range(0, len(held), 32):
        bench.compare([case for _, case in held[at : at + 32]], tally)
    good = set[str]()
    for each, case in held:
        wrong = _wrong(each, bench.tokenizer, case.expected, tally)
        figures.valid += not wrong
        if wrong:
            figures.wrong.append(wrong)
        else:
            good.add(each.text)
    figures.valid_texts = len(good)
    return figures


def _wrong(each: Listed, tokenizer: PieceTokenizer, reply: SerialReply, tally: Tally) -> str:
    """What is wrong with a reply as JSON of its schema; empty: nothing."""
    if reply.finish != "stop":
        tally.cut += 1
        return f"{each.name}: the reply did not end"
    text = tokenizer.decode(reply.tokens[:-1])
    try:
        getattr(import_module("jsonschema"), DRAFTS[each.draft])(each.schema).validate(json.loads(text))
    except re.error as foreign:
        tally.unjudged += 1
        return f"{each.name}: the validator cannot read the pattern: {foreign}"
    except Exception as invalid:
        tally.invalid += 1
        return f"{each.name}: {text[:200]!r} is not valid: {str(invalid).splitlines()[0][:200]}"
    return ""


# -- cells -------------------------------------------------------------------------------------------------------

SCHEMAS = (
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
    {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}, {"$ref": "#"}]}},
    {"type": "object"},
    {"enum": ["yes", "no", {"a": [1, 2, "three"]}, "not now"]},
)
REGEXES = (r"[a-z]{3,40}(-[0-9]{1,9}){0,9}\.", r"(yes|no|maybe)( (yes|no|maybe)){0,30}!", r'"?[^"\n]{0,60}"')


def grammar_case(bench: Bench) -> Case:
    """A schema or an expression, with and without a thought in front."""
    rng = bench.rng
    if rng.random() < 0.6:
        grammar = json_schema(rng.choice(SCHEMAS))
        matcher = bench.compiler.compile(str(grammar.kind), grammar.text)
    else:
        matcher = bench.compiler.compile("regex", rng.choice(REGEXES))
    thinks = rng.random() < 0.4
    return bench.case(matcher, thinks=thinks, budget=rng.randrange(1, 40) if thinks and rng.random() < 0.6 else 0)


def call_case(bench: Bench) -> Case:
    """A forced call in one of the forms."""
    return bench.case(forced(bench.compiler, bench.rng), thinks=bench.rng.random() < 0.3)


def budget_case(bench: Bench) -> Case:
    """A budget alone."""
    return bench.case(None, thinks=True, budget=bench.rng.randrange(1, 120))


CELLS: dict[str, Callable[[Bench], Case]] = {"grammar": grammar_case, "forced call": call_case, "budget": budget_case}


def bench_of(name: str, seed: int) -> Bench:
    """A model for one kind of reply; where a budget alone is tried, thoughts and replies seldom end by themselves."""
    if name != "budget":
        return Bench(seed)
    bench = Bench(seed, {"</think>": -4.0})
    bench.law.weights[bench.tokenizer.end_id] = -2.0
    return bench


def cell(name: str, least: int, seed: int, batch: int = 32) -> Tally:
    """Compare replies of one kind until `least` tokens were."""
    tally, make = Tally(), CELLS[name]
    while tally.tokens < least and not tally.differences:
        seed += 1
        bench = bench_of(name, seed)
        cases = [make(bench) for _ in range(batch)]
        for case in cases:
            bench.expect(case)
        bench.compare(cases, tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", type=Path, help="a source package of jsonschema; without it, pip fetches one")
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args()
    began = time.monotonic()
    tally = Tally()
    try:
        figures = schemas(suite(flags.suite), tally, flags.seed)
    except AbsentError as absent:
        print(f"the suite of schemas is not here: {absent}")
        return 1
    for line in (*figures.wrong, *([tally.first] if tally.first else [])):
        print(line)
    failed = bool(tally.differences or tally.invalid or figures.valid_texts < LEAST_SCHEMAS)
    print(
        f"grammar: {figures.listed} schemas listed, {figures.refused} refused, {figures.held} held "
        f"({figures.distinct} different ones), {figures.valid} valid replies (to {figures.valid_texts} different ones, "
        f"{LEAST_SCHEMAS} are due), {tally.cut} cut at {_MOST} tokens, "
        f"{tally.unjudged} beyond the validator, {tally.invalid} invalid; "
        f"{tally.tokens:,} tokens drafted and compared, {tally.differences} differences, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
