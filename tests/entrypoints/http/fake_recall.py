"""A record's service that does as a test says: it reports what it is given, and its DELETE waits or fails."""

from __future__ import annotations

import threading
from dataclasses import replace

from tensorfold.application.recall import RecallReport
from tensorfold.domain.recall.figures import ClassFigures, OfferFigures

COPIES = OfferFigures(
    offers=9,
    probes=2,
    offered_tokens=120,
    landed_tokens=101,
    missed_offers=1,
    classes=(
        ClassFigures("16-31", 4, 40, 30, 4.25),
        ClassFigures("32-63", 3, 40, 35, 5.12345),
        ClassFigures("64+", 2, 40, 36, 6.5),
    ),
)
REPORT = RecallReport(
    state="on",
    directory="folder/of/ids",
    tokenizer="sha256:" + "ab12" * 16,
    vocabulary=267,
    model="tiny",
    ids=1234567,
    chunks=2,
    disk_bytes=4938268,
    memory_bytes=25165824,
    budget_bytes=67108864,
    added_ids=1000,
    held_ids=2000,
    dropped_ids=3,
    evicted_ids=4,
    copies=COPIES,
    reason=None,
)
EMPTY = replace(
    REPORT, ids=0, chunks=0, disk_bytes=0, added_ids=0, held_ids=0, dropped_ids=0, evicted_ids=0, copies=OfferFigures()
)


class FakeRecall:
    """Empties its report on DELETE, once `writer` is set; `refusal` is raised instead."""

    def __init__(self, report: RecallReport = REPORT, refusal: Exception | None = None) -> None:
        self.writer = threading.Event()
        self.writer.set()
        self.deleting = threading.Semaphore(0)
        self.deletes = 0
        self._report = report
        self._refusal = refusal

    def report(self) -> RecallReport:
        return self._report

    def delete(self) -> RecallReport:
        self.deletes += 1
        self.deleting.release()
        assert self.writer.wait(30)
        if self._refusal is not None:
            raise self._refusal
        self._report = EMPTY
        return self._report
