"""Prove on this machine that drafts, neighbours and cancellations change no token.

One serial reference, then the same requests under every mode through the real scheduler, with planted drafts beside
the real sources and windows forced whatever they cost. Ids are compared, and the bits of the rows that drew them. A
mode that saw too few kept or refused drafts, windows or stops has proved nothing, and fails.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from tensorfold.application.planting import PlantedDrafts, Shape, Tally
from tensorfold.application.ports.services import GrammarCompiler
from tensorfold.application.ports.tokenizer import Tokenizer
from tensorfold.application.proof import Case, Report, Row
from tensorfold.application.proof_runner import ProofRunner, Read
from tensorfold.application.proving_grammar import grammar_rows
from tensorfold.application.proving_prompts import MakeShelf, PromptRows
from tensorfold.application.proving_record import RecordRows, RecordUnderProof
from tensorfold.application.scheduler import Scheduler
from tensorfold.domain.sampling import Sampling

_PASSES = 12
_WIDEST = 16
"""Rows of the widest window proved: replies are too short for every length of a wider one, which the load check probes.
"""
_TEXTS = (
    "one two three four one two three four one two three",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n",
    "Heads or tails? Yes or no? Left or right? Answer:",
)
_PROMPT_IDS = 24


class Prover:
    """Runs the proof through a scheduler whose engine forces windows."""

    def __init__(
        self,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        say: Callable[[str], None] = lambda line: None,
        *,
        seed: int = 1,
        record: RecordUnderProof | None = None,
        shelf: MakeShelf | None = None,
        grammars: GrammarCompiler | None = None,
        on_reference: Callable[[Case], None] = lambda case: None,
    ) -> None:
        """`record` is what the scheduler's engine drafts from and records to; without it the record is not proved.

        `shelf` opens kept states on disk; without it none are resumed from there. Without `grammars` replies of a
        given form are not proved.

        `on_reference` is told every serial reply before anything is drafted.
        """
        self._scheduler = scheduler
        self._limits = scheduler.engine.model.limits
        self._runner = ProofRunner(scheduler)
        self._tokenizer = tokenizer
        self._record = record
        self._shelf = shelf
        self._grammars = grammars
        self._say = say
        self._seed = seed
        self._on_reference = on_reference

    def run(self) -> Report:
        """Every mode; stops early only when the serial reference itself fails."""
        rows: list[Row] = []
        kinds = {"greedy": self._reference(greedy=True), "sampled": self._reference(greedy=False)}
        chain, tree = self._width("chain"), self._width("tree")
        shapes: list[tuple[Shape, int]] = [("chain", chain), ("tree", tree)]
        for kind, cases in kinds.items():
            for shape, width in shapes:
                if width >= 2:
                    rows.append(self._alone(f"{shape}s, {kind}", cases, shape, width))
        if self._limits.head is not None and max(chain, tree) >= 2:
            rows += [self._headed(f"draft head, {kind}", cases) for kind, cases in kinds.items()]
        mixed = (*kinds["greedy"], *kinds["sampled"])
        rows.append(self._crowd(mixed, chain))
        rows.append(self._leaving(mixed))
        rows += PromptRows(self._runner, self._tell, self._shelf).run(mixed)
        if self._grammars is not None:
            table = self._tokenizer.token_bytes
            rows += grammar_rows(self._runner, self._grammars, chain, self._tell, self._say, mixed, table)
        if self._record is not None and chain >= 2:
            rows += RecordRows(self._runner, self._record, self._tell).run(mixed)
        return Report(tuple(rows), self._reasons(rows))

    def _reasons(self, rows: Sequence[Row]) -> tuple[str, ...]:
        reasons = []
        if self._limits.chain_width < 2:
            reasons.append(
                "the load check left windows of one row here: drafts are off, and nothing drafted was proved"
            )
        for row in rows:
            if row.first is not None:
                reasons.append(f"{row.mode}: {row.first.sentence()}")
            if row.note:
                reasons.append(f"{row.mode}: {row.note}")
            reasons += [f"{row.mode}: {lack}" for lack in row.lacks()]
        return tuple(reasons)

    # -- the reference -------------------------------------------------------------------------------------------

    def _reference(self, *, greedy: bool) -> tuple[Case, ...]:
        """Serial replies, each request alone, one row a round."""
        cases = []
        for index, text in enumerate(_TEXTS):
            prompt = tuple(self._tokenizer.encode(text))[:_PROMPT_IDS] or (0,)
            sampling = Sampling() if greedy else _sampling(index, self._seed)
            cases.append(self._runner.serial(Case(prompt, sampling)))
            self._on_reference(cases[-1])
        self._say(f"serial reference, {'greedy' if greedy else 'sampled'}: {sum(len(c.reply) for c in cases)} tokens")
        return tuple(cases)

    # -- modes ---------------------------------------------------------------------------------------------------

    def _alone(self, mode: str, cases: Sequence[Case], shape: Shape, width: int) -> Row:
        """One stream at a time, until the mode has seen what it must."""
        row = Row(mode, widest=width - 1)
        lengths = _lengths(width - 1, row.tally)
        for number in range(_PASSES):
            for index, case in enumerate(cases):
                stop = _stop_at(case, number) if index == number % len(cases) else None
                self._runner.compare(row, index, case, self._start(case, row, shape, lengths, stop).finish(), stop)
            if row.first is not None or not row.lacks():
                break
        self._tell(row)
        return row

    def _headed(self, mode: str, cases: Sequence[Case]) -> Row:
        """All requests at once with nothing planted: what the model's own head drafts, beside copies."""
        row = Row(mode, counts_drafts=False, heads=True)
        for _ in range(_PASSES):
            reads = [self._runner.start(case) for case in cases]
            for index, (case, read) in enumerate(zip(cases, reads, strict=True)):
                self._runner.compare(row, index, case, read.finish())
            if row.first is not None or not row.lacks():
                break
        self._tell(row)
        return row

    def _crowd(self, cases: Sequence[Case], width: int) -> Row:
        """All requests at once, chains beside trees where trees are verified."""
        shares = self._limits.shares_rounds and self._scheduler.parallel > 1
        row = Row("crowd, shared rounds" if shares else "crowd, rounds in turn", widest=width - 1)
        row.counts_drafts = width >= 2
        lengths = _lengths(width - 1, row.tally)
        before = self._scheduler.counters.shared_launches
        for number in range(_PASSES):
            reads = []
            for index, case in enumerate(cases):
                stop = _stop_at(case, number) if index % 3 == number % 3 else None
                reads.append((index, case, stop, self._start(case, row, self._shape(index), lengths, stop)))
            for index, case, stop, read in reads:
                self._runner.compare(row, index, case, read.finish(), stop)
            if shares:
                row.shared = self._scheduler.counters.shared_launches - before
            if row.first is not None or not row.lacks():
                break
        self._tell(row)
        return row

    def _leaving(self, cases: Sequence[Case]) -> Row:
        """Half of a crowd leaves at different points and comes back; nobody's reply may change."""
        row = Row("cancel and rejoin", counts_drafts=False)
        lengths = _lengths(max(self._width("chain") - 1, 0), row.tally)
        reads = [self._start(case, row, self._shape(i), lengths, None) for i, case in enumerate(cases)]
        for index, read in enumerate(reads):
            if index % 2:
                if read.until(index // 2 * 5):
                    read.generation.cancel()
                reads[index] = self._start(cases[index], row, self._shape(index), lengths, None)
        for index, (case, read) in enumerate(zip(cases, reads, strict=True)):
            self._runner.compare(row, index, case, read.finish(), None)
        self._tell(row)
        return row

    def _width(self, shape: Shape) -> int:
        return min(self._limits.tree_width if shape == "tree" else self._limits.chain_width, _WIDEST)

    def _shape(self, index: int) -> Shape:
        return "tree" if index % 2 and self._limits.tree_width >= 2 else "chain"

    def _start(self, case: Case, row: Row, shape: Shape, lengths: Iterator[int], stop: int | None) -> Read:
        oracle = PlantedDrafts(
            len(case.prompt), case.reply, lengths, shape, self._limits.vocabulary, row.tally, 6, self._width(shape) - 1
        )
        return self._runner.start(case, oracle, stop=stop)

    def _tell(self, row: Row) -> None:
        self._say(f"{row.mode}: {row.compared} tokens compared, {row.kept} drafts kept, {row.refused} refused")


def _sampling(index: int, seed: int) -> Sampling:
    """Sampled settings that stress near-ties: hot, with and without cuts."""
    return (
        Sampling(seed + index, 1.0, 0, 0.95),
        Sampling(seed + index, 1.3, 40, 1.0),
        Sampling(seed + index, 0.8, 20, 0.9, 0.02),
    )[index % 3]


def _lengths(widest: int, tally: Tally) -> Iterator[int]:
    """How many drafts of each window should be right: the widest that none kept yet, then all lengths over and over.

    A reply's end cuts what is planted there: a length is tried until a window kept it, if need be in the next reply.
    """
    while missing := tally.missing(widest):
        yield missing[-1]
    yield from itertools.cycle(range(widest, -1, -1))


def _stop_at(case: Case, number: int) -> int:
    """An id of the reply whose first occurrence lies a few tokens in, another one each pass."""
    firsts = [token for at, token in enumerate(case.reply) if case.reply.index(token) == at and at >= 3]
    return firsts[number % len(firsts)] if firsts else case.reply[0]
