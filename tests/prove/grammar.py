"""The proof of gates: replies under schemas, forced calls and budgets are valid, and drafted and shared ones serial.

The command takes the schemas of a public test suite, each with a reply of a hash model that is steered to end, and its
last line has the figures. Cells of random grammars, forced calls and budgets are run by the proof of conversations.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.services import GrammarMatcher
from tensorfold.domain.gates.grammar import json_schema
from tests.fakes.serial import SerialReply
from tests.fakes.steered import PieceTokenizer
from tests.prove.calls import forced
from tests.prove.gate_bench import MOST, Bench, Case, Tally
from tests.prove.given_up import Crowded
from tests.prove.schemas import DRAFTS, AbsentError, Listed, suite

LEAST_SCHEMAS = 300
GIVEN_UP = "given up"
"""The cell whose streams give their lanes up on the way."""


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


def _written(bench: Bench) -> GrammarMatcher:
    """A matcher of a schema or an expression."""
    if bench.rng.random() < 0.6:
        grammar = json_schema(bench.rng.choice(SCHEMAS))
        return bench.compiler.compile(str(grammar.kind), grammar.text)
    return bench.compiler.compile("regex", bench.rng.choice(REGEXES))


def grammar_case(bench: Bench) -> Case:
    """A schema or an expression, with and without a thought in front."""
    rng, matcher = bench.rng, _written(bench)
    thinks = rng.random() < 0.4
    return bench.case(matcher, thinks=thinks, budget=rng.randrange(1, 40) if thinks and rng.random() < 0.6 else 0)


def call_case(bench: Bench) -> Case:
    """A forced call in one of the forms."""
    return bench.case(forced(bench.compiler, bench.rng), thinks=bench.rng.random() < 0.3)


def budget_case(bench: Bench) -> Case:
    """A budget alone."""
    return bench.case(None, thinks=True, budget=bench.rng.randrange(1, 120))


def masked_case(bench: Bench) -> Case:
    """A schema, an expression or a call, and no budget, whose token no row would draw again."""
    rng = bench.rng
    matcher = forced(bench.compiler, rng) if rng.random() < 0.4 else _written(bench)
    return bench.case(matcher, thinks=rng.random() < 0.3)


CELLS: dict[str, Callable[[Bench], Case]] = {
    "grammar": grammar_case,
    "forced call": call_case,
    "budget": budget_case,
    GIVEN_UP: masked_case,
}


def bench_of(name: str, seed: int) -> Bench:
    """A model for one kind of reply; where a budget alone is tried, thoughts and replies seldom end by themselves."""
    if name == GIVEN_UP:
        return Crowded(seed)
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
        f"{LEAST_SCHEMAS} are due), {tally.cut} cut at {MOST} tokens, "
        f"{tally.unjudged} beyond the validator, {tally.invalid} invalid; "
        f"{tally.tokens:,} tokens drafted and compared, {tally.differences} differences, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
