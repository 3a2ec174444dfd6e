"""Measure what drafts and a record are worth on this machine, through the real scheduler, and that no token changes.

The same requests in every mode and over every number of streams. Each reply must be the serial reply of the same
engine, token for token: the first that is not ends the benchmark. The record lies where the caller puts it, is made
anew for every cell and holds exactly the benchmark's own prompts and serial replies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorfold.application.benchmark_cells import CellRunner, Measured, row_of
from tensorfold.application.benchmark_results import Row
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.machine import Clock
from tensorfold.application.proving_record import RecordUnderProof
from tensorfold.application.replies import GenerationRequest
from tensorfold.application.scheduler import Scheduler
from tensorfold.domain.sampling import Sampling

SERIAL, DRAFTS, RECORD = "serial", "drafts", "drafts with a record"
NO_RECORD = "none"
SEEN = "seen: every prompt and its reply, once"
"""The record's states, as results name them."""
LEAST_REPLY = 8
_WARM_TOKENS = 8
_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt of the benchmark as ids."""

    name: str
    prompt: tuple[int, ...]
    sampling: Sampling


class NotEqualError(Exception):
    """A reply is not the serial one; `message` names the place."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Matrix:
    """What is measured: replies of `reply` tokens to every prompt `runs` times, over each number of `streams`."""

    questions: tuple[Question, ...]
    reply: int
    runs: int
    streams: tuple[int, ...]

    @property
    def passes(self) -> int:
        """How often every prompt is asked in a cell: `runs`, and more where some stream would get no request."""
        return max(self.runs, -(-max(self.streams) // len(self.questions)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows of a benchmark, how many replies were held against another one, and how many of them were different."""

    rows: tuple[Row, ...]
    compared: int
    differences: int = 0


class Listener:
    """Hears how far a benchmark is; does nothing by itself."""

    def began(self, mode: str, streams: int, replies: int) -> None:
        """A cell of so many replies begins."""

    def replied(self, done: int) -> None:
        """So many replies of the cell have ended."""

    def measured(self, row: Row) -> None:
        """The cell is done."""


class Benchmark:
    """Runs one matrix on a scheduler that drafts from `record`, hands it what streams wrote, and serves nobody else."""

    def __init__(
        self, scheduler: Scheduler, record: RecordUnderProof, clock: Clock, matrix: Matrix, listener: Listener
    ) -> None:
        self._scheduler = scheduler
        self._record = record
        self._matrix = matrix
        self._listener = listener
        self._runner = CellRunner(scheduler, clock)
        self._replies: dict[int, tuple[int, ...]] = {}
        self._compared = 0

    def run(self) -> Outcome:
        """Every cell. Raises NotEqualError at the first reply that is not the serial one, RefusedError."""
        self._check_room()
        self._warm_up()
        if 1 not in self._matrix.streams:
            self._refer()
        rows = [self._cell(SERIAL, NO_RECORD, streams) for streams in self._matrix.streams]
        if self._scheduler.engine.model.limits.chain_width >= 2:
            rows += [self._cell(DRAFTS, NO_RECORD, streams) for streams in self._matrix.streams]
            rows += [self._recorded(streams) for streams in self._matrix.streams]
        return Outcome(tuple(rows), self._compared)

    def _check_room(self) -> None:
        context = self._scheduler.factory.context
        for question in self._matrix.questions:
            if len(question.prompt) + self._matrix.reply > context:
                raise RefusedError(
                    f"prompt {question.name!r} has {len(question.prompt)} ids, and with --tokens {self._matrix.reply} "
                    f"it goes past the window of {context}; choose fewer tokens or other prompts (--prompts)."
                )

    def _warm_up(self) -> None:
        """One short reply that nobody measures: the first of a process pays for what later ones find ready."""
        self._runner.run([replace(self._request(0, draft=False), max_tokens=_WARM_TOKENS)], 1)

    def _refer(self) -> None:
        """The serial reply to every prompt, each request alone; where one stream is measured, that cell brings them."""
        questions = self._matrix.questions
        measured = self._runner.run([self._request(at, draft=False) for at in range(len(questions))], 1)
        self._replies = {answer.at: answer.ids for answer in measured.answers}

    def _recorded(self, streams: int) -> Row:
        """A cell with a record that has seen the prompts and their serial replies, and nothing else."""
        service = self._record.use(f"{streams}-streams")
        try:
            for at, question in enumerate(self._matrix.questions):
                service.record(question.prompt + self._replies[at], 0, service.began())
                service.settle(_WAIT_S)
            return self._cell(RECORD, SEEN, streams)
        finally:
            self._record.rest()

    def _cell(self, mode: str, record: str, streams: int) -> Row:
        count = len(self._matrix.questions)
        requests = [self._request(at % count, draft=mode != SERIAL) for at in range(count * self._matrix.passes)]
        self._listener.began(mode, streams, len(requests))
        measured = self._runner.run(requests, streams, self._listener.replied)
        row = row_of(mode, record, streams, measured)
        self._compare(row, measured)
        self._listener.measured(row)
        return row

    def _request(self, at: int, *, draft: bool) -> GenerationRequest:
        question = self._matrix.questions[at]
        return GenerationRequest(
            question.prompt, question.sampling, self._matrix.reply, ignore_eos=True, draft=draft, label="bench"
        )

    def _compare(self, row: Row, measured: Measured) -> None:
        """Hold every reply against the serial one; the first replies of one serial stream are what others are held to.

        That cell is measured first, and its replies end in the order of their requests.
        """
        for answer in measured.answers:
            at = answer.at % len(self._matrix.questions)
            if at not in self._replies:
                self._replies[at] = answer.ids
                continue
            self._compared += 1
            if answer.ids != self._replies[at]:
                place = f"{row.name}: the reply to prompt {self._matrix.questions[at].name!r}"
                raise NotEqualError(f"{place} {difference(self._replies[at], answer.ids)}")


def difference(expected: Sequence[int], got: Sequence[int]) -> str:
    """Where a reply first leaves the serial one, in words; tokens of the reply are counted from 0."""
    for at, (want, have) in enumerate(zip(expected, got, strict=False)):
        if want != have:
            return f"leaves the serial reply at token {at}: expected id {want}, got {have}"
    return f"has {len(got)} tokens where the serial reply has {len(expected)}"
