"""`/v1/recall`: what the record is and did, in figures, and the way to empty it.

Knows no id and no text of the record. Looking never waits; emptying waits for the record's writer, in few threads.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import falcon

from tensorfold.application.recall import RecallConflictError, RecallDeleteError, RecallReport
from tensorfold.entrypoints.http.errors import INVALID, NO_RETRY, SERVER, ApiError, overloaded
from tensorfold.entrypoints.http.services import Services

MOST_DELETES = 4
"""DELETEs that may wait for the writer at once: the threads beyond them answer health and models."""
OFF = {"object": "recall", "state": "off"}


class RecallRoute:
    """GET reports, DELETE empties. A server that keeps no record says so."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._places = threading.Semaphore(MOST_DELETES)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The record as it stands. Raises ApiError (503) until it is opened."""
        resp.set_header("Cache-Control", "no-store")
        recall = self._services.recall
        resp.data = json.dumps(OFF if recall is None else figures(recall.report())).encode()

    def on_head(self, req: falcon.Request, resp: falcon.Response) -> None:
        """As GET, without the body."""
        self.on_get(req, resp)

    def on_delete(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Empty the record and show it. Raises ApiError: 404 without one, 409, 500 when a file stayed, 503."""
        resp.set_header("Cache-Control", "no-store")
        recall = self._services.recall
        if recall is None:
            raise ApiError(404, "This server keeps no record; `--recall` at its start makes it keep one.", INVALID)
        try:
            with self._place():
                report = recall.delete()
        except RecallConflictError as conflict:
            raise ApiError(409, conflict.message, INVALID, None, "recall_read_only", NO_RETRY) from None
        except RecallDeleteError as failure:
            raise ApiError(500, failure.message, SERVER, None, "recall_delete_failed", NO_RETRY) from None
        resp.data = json.dumps(figures(report)).encode()

    @contextmanager
    def _place(self) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise overloaded(f"{MOST_DELETES} requests to empty the record wait already.", 1)
        try:
            yield
        finally:
            self._places.release()


def figures(report: RecallReport) -> dict[str, Any]:
    """A report as the route's object, in the order it is documented."""
    copies = report.copies
    return {
        "object": "recall",
        "state": report.state,
        "dir": report.directory,
        "tokenizer": report.tokenizer,
        "vocabulary": report.vocabulary,
        "model": report.model,
        "ids": report.ids,
        "chunks": report.chunks,
        "disk_bytes": report.disk_bytes,
        "memory_bytes": report.memory_bytes,
        "budget_bytes": report.budget_bytes,
        "added_ids": report.added_ids,
        "held_ids": report.held_ids,
        "dropped_ids": report.dropped_ids,
        "evicted_ids": report.evicted_ids,
        "offers": copies.offers,
        "probes": copies.probes,
        "offered_tokens": copies.offered_tokens,
        "landed_tokens": copies.landed_tokens,
        "missed_offers": copies.missed_offers,
        "classes": [asdict(each) | {"expected": round(each.expected, 3)} for each in copies.classes],
        "reason": report.reason,
    }
