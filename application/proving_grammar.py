"""Replies under grammars proved: drafted and shared ones equal the serial ones, row by row.

The grammars never let a reply end, so every reply fills its room and every row of it is masked.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from tensorfold.application.planting import PlantedDrafts
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.services import GrammarCompiler
from tensorfold.application.proof import LEAST_KEPT, Case, Row
from tensorfold.application.proof_runner import ProofRunner
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.gates.grammar import Grammar, GrammarKind, json_schema

GRAMMARS = (
    Grammar(GrammarKind.REGEX, "[a-zA-Z0-9 ,.]{4000}"),
    json_schema({"type": "array", "items": {"type": "integer"}, "minItems": 500}),
)
_PASSES = 12
_ALPHABET = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ,.[]-"
"""What the grammars are written in. A tokenizer without one of these alone may come to where nothing can follow."""


class GrammarRows:
    """Runs the modes with grammars. `width` is that of the widest chain to plant."""

    def __init__(self, runner: ProofRunner, compiler: GrammarCompiler, width: int, tell: Callable[[Row], None]) -> None:
        self._runner = runner
        self._compiler = compiler
        self._width = width
        self._tell = tell

    def run(self, cases: Sequence[Case]) -> list[Row]:
        """All requests at once, each under one of the grammars. Raises RefusedError when one cannot be compiled."""
        held = [self._runner.serial(self._held(case, number)) for number, case in enumerate(cases)]
        row = Row("grammar", counts_drafts=False)
        lengths = itertools.cycle(range(self._width - 1, -1, -1))
        for _ in range(_PASSES):
            reads = [self._runner.start(case, self._planted(case, lengths, row)) for case in held]
            for index, (case, read) in enumerate(zip(held, reads, strict=True)):
                self._runner.compare(row, index, case, read.finish())
            if row.first is not None or row.kept >= LEAST_KEPT:
                break
        if self._width >= 2 and row.kept < LEAST_KEPT:
            row.note = row.note or f"{row.kept} drafts kept under a grammar, at least {LEAST_KEPT} are needed"
        self._tell(row)
        return [row]

    def _held(self, case: Case, number: int) -> Case:
        grammar = GRAMMARS[number % len(GRAMMARS)]
        matcher = self._compiler.compile(str(grammar.kind), grammar.text)
        constraint = Constraint(matcher, self._runner.limits.vocabulary, frozenset())
        return replace(case, reply=(), prints=(), constraint=constraint)

    def _planted(self, case: Case, lengths: itertools.cycle[int], row: Row) -> PlantedDrafts | None:
        if self._width < 2:
            return None
        vocabulary = self._runner.limits.vocabulary
        return PlantedDrafts(len(case.prompt), case.reply, lengths, "chain", vocabulary, row.tally, 6, self._width - 1)


def grammar_rows(
    runner: ProofRunner,
    compiler: GrammarCompiler,
    width: int,
    tell: Callable[[Row], None],
    say: Callable[[str], None],
    cases: Sequence[Case],
    token_bytes: TokenBytes,
) -> list[Row]:
    """The rows; none, and a line that says why, where the tokenizer cannot write what the grammars ask for."""
    if not {bytes((byte,)) for byte in _ALPHABET} <= set(token_bytes.table):
        say("grammar: left out, this tokenizer has no token for each letter and digit")
        return []
    try:
        return GrammarRows(runner, compiler, width, tell).run(cases)
    except RefusedError as refusal:
        say(f"grammar: left out: {refusal.message}")
        return []
