"""The record's modes of a proof: on, read-only, poisoned, and emptied while streams copy from it.

The record lies in a folder of the proof's own and is filled with the serial replies, and with wrong continuations of
them, so that every mode sees copies land and miss. Verification is untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tensorfold.application.proof import Case, Copies, Row
from tensorfold.application.proof_runner import ProofRunner
from tensorfold.application.recall import RecallService
from tensorfold.domain.drafting.sources import CHAINS, DraftSource, Proposal, Widths
from tensorfold.domain.recall.source import RECALL

_PASSES = 12
_LATER = 4
"""How many more tokens of a reply land, with each pass, before the record under it is emptied."""
_WAIT_S = 60.0
_AT_ONCE = 32
"""Runs handed over before the writer is waited for; more would be dropped."""
_CONTEXT, _WRONG = 24, 8
"""A wrong continuation: this many right ids, so that it is found, then this many wrong ones."""

MakeRecord = Callable[[str, bool], RecallService]
"""From a folder's name and whether it is only read, a record that is opened but not started."""


class RecordUnderProof:
    """Draft source factory and recorder of an engine; the record behind them is exchanged between modes."""

    def __init__(self, make: MakeRecord) -> None:
        self._make = make
        self._service: RecallService | None = None

    def use(self, name: str, *, read_only: bool = False) -> RecallService:
        """Close what was used and load the record of that name."""
        self.rest()
        service = self._make(name, read_only)
        service.start()
        service.wait_loaded(_WAIT_S)
        self._service = service
        return service

    def rest(self) -> None:
        """Use no record."""
        service, self._service = self._service, None
        if service is not None:
            service.close()

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> DraftSource:
        """A source of the record in use; a silent one without."""
        return _Silent() if self._service is None else self._service.factory.open(prompt, widths)

    def began(self) -> int:
        """The mark of the record in use."""
        return 0 if self._service is None else self._service.began()

    def record(self, tokens: Sequence[int], resumed: int, began: int) -> None:
        """Hand on to the record in use."""
        if self._service is not None:
            self._service.record(tokens, resumed, began)


class _Silent:
    """Proposes nothing."""

    name = RECALL

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        return None

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        return None


class RecordRows:
    """Runs the four modes, each until it has seen what it must."""

    def __init__(self, runner: ProofRunner, record: RecordUnderProof, tell: Callable[[Row], None]) -> None:
        self._runner = runner
        self._record = record
        self._tell = tell

    def run(self, cases: Sequence[Case]) -> list[Row]:
        """One row a mode."""
        try:
            return [self._on(cases), self._read_only(cases), self._poisoned(cases), self._deleted(cases)]
        finally:
            self._record.rest()

    def _on(self, cases: Sequence[Case]) -> Row:
        service = self._record.use("on")
        self._fill(service, cases)

        # Others each time, since the record soon holds every right continuation.
        return self._until_seen(_row("record on"), cases, lambda number: self._mislead(service, cases, 1 + number))

    def _read_only(self, cases: Sequence[Case]) -> Row:
        """On what the first mode recorded, which must stay as it was."""
        service = self._record.use("on", read_only=True)
        before = service.report()
        # By now the record holds every reply, so where windows are wide nearly all of its copies are right.
        row = self._until_seen(_row("record read-only", misses=False), cases)
        after = service.report()
        if (after.ids, after.disk_bytes, after.added_ids) != (before.ids, before.disk_bytes, 0):
            row.note = "a record that is only read was changed"
        return row

    def _poisoned(self, cases: Sequence[Case]) -> Row:
        """Nothing in the record is right; streams of the mode add nothing that is."""
        service = self._record.use("poisoned")
        self._mislead(service, cases, 1)
        self._record.use("poisoned", read_only=True)
        return self._until_seen(_row("record poisoned", lands=False), cases)

    def _deleted(self, cases: Sequence[Case]) -> Row:
        """The record is filled, streams begin to copy from it, and it is emptied under them."""
        service = self._record.use("deleted")
        row = _row("record deleted mid-stream")
        for number in range(_PASSES):
            self._fill(service, cases)
            if number:  # too little was copied before: more is wrong now, and the record goes later
                self._mislead(service, cases, 1 + number)
            reads = [self._runner.start(case) for case in cases]
            for read in reads[1::2]:
                read.until(1 + _LATER * number)
            service.delete()
            for index, (case, read) in enumerate(zip(cases, reads, strict=True)):
                self._runner.compare(row, index, case, read.finish())
            service.settle(_WAIT_S)
            if service.report().ids:
                row.note = "a stream added to a record that was emptied after the stream began"
            if row.first is not None or not row.lacks():
                break
        self._tell(row)
        return row

    def _until_seen(self, row: Row, cases: Sequence[Case], before: Callable[[int], None] = lambda number: None) -> Row:
        """All cases at once and each alone, in turn, until the row lacks nothing; `before` each time but the first."""
        for number in range(_PASSES):
            if number:
                before(number)
            if number % 2:
                for index, case in enumerate(cases):
                    self._runner.compare(row, index, case, self._runner.start(case).finish())
            else:
                reads = [self._runner.start(case) for case in cases]
                for index, (case, read) in enumerate(zip(cases, reads, strict=True)):
                    self._runner.compare(row, index, case, read.finish())
            # Both ways of running are part of the mode, however soon enough was copied.
            if row.first is not None or (number and not row.lacks()):
                break
        self._tell(row)
        return row

    # -- filling -------------------------------------------------------------------------------------------------

    def _fill(self, service: RecallService, cases: Sequence[Case]) -> None:
        """Right replies of every other case, wrong continuations of the others."""
        runs: list[Sequence[int]] = [case.prompt + case.reply for case in cases[::2]]
        self._hand_over(service, runs + [run for case in cases[1::2] for run in self._wrong(case)])

    def _mislead(self, service: RecallService, cases: Sequence[Case], shift: int) -> None:
        """Wrong continuations of all cases, other ones by another shift."""
        self._hand_over(service, [run for case in cases for run in self._wrong(case, shift)])

    def _wrong(self, case: Case, shift: int = 1) -> Iterator[Sequence[int]]:
        text, start = case.prompt + case.reply, len(case.prompt)
        vocabulary = self._runner.limits.vocabulary
        for at in range(start, len(text)):
            wrong = tuple((token + shift) % vocabulary for token in text[at : at + _WRONG])
            yield text[max(0, at - _CONTEXT) : at] + wrong

    def _hand_over(self, service: RecallService, runs: Sequence[Sequence[int]]) -> None:
        for first in range(0, len(runs), _AT_ONCE):
            for run in runs[first : first + _AT_ONCE]:
                service.record(run, 0, service.began())
            service.settle(_WAIT_S)


def _row(mode: str, *, lands: bool = True, misses: bool = True) -> Row:
    return Row(mode, counts_drafts=False, copies=Copies(lands=lands, misses=misses))
