"""One record per request: who asked for what, and how it went. No word of a prompt or a reply is in it.

Polls that succeed (GET and HEAD) are left out. A streamed reply is told when its stream ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import falcon

from tensorfold.entrypoints.http.error_handlers import shown
from tensorfold.entrypoints.http.outcome import Outcome


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """`seconds` run from the request's head to the end of its answer; `label` names the key that asked."""

    method: str
    path: str
    status: int
    seconds: float
    label: str = ""
    outcome: Outcome | None = None

    def line(self) -> str:
        """The record as one line of text."""
        parts = [self.method, shown(self.path), str(self.status), f"{self.seconds:.3f}s"]
        if self.label:
            parts.append(f"key={self.label}")
        if self.outcome is not None:
            parts += _reply(self.outcome)
        return " ".join(parts)


AccessLog = Callable[[AccessRecord], None]


def _reply(outcome: Outcome) -> list[str]:
    named = [f"id={outcome.reply}"] if outcome.reply else []
    if outcome.done is None:
        return [*named, f"end={outcome.ending}"]
    stats = outcome.done.stats
    return [
        *named,
        f"prompt={stats.prompt_tokens}",
        f"cached={stats.cached_tokens}",
        f"tokens={stats.completion_tokens}",
        f"sha={outcome.done.token_sha}",
        f"finish={outcome.done.finish_reason}",
        f"tok/s={stats.tokens_per_second:.1f}",
        f"ttft={stats.ttft_s:.3f}s",
        f"prefill={stats.prefill_s:.3f}s",
        f"rounds={stats.rounds}",
        f"drafts={stats.accepted}/{stats.drafted}",
    ]


class AccessLogger:
    """Times every request and tells of it once."""

    def __init__(self, log: AccessLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Note the start."""
        req.context.began = self._clock()
        req.context.label = ""

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: Any, succeeded: bool) -> None:
        """Tell of an answer that is whole; a stream is told by `streamed`."""
        if resp.stream is None:
            self._tell(req, resp.status_code, req.context.get("outcome"))

    def streamed(self, req: falcon.Request, outcome: Outcome) -> None:
        """Tell of a streamed reply that has ended."""
        self._tell(req, 200, outcome)

    def _tell(self, req: falcon.Request, status: int, outcome: Outcome | None) -> None:
        if req.method in ("GET", "HEAD", "OPTIONS") and status < 400:
            return
        # A request refused before anything looked at it has no start and no key.
        now, known = self._clock(), req.context
        seconds = now - getattr(known, "began", now)
        self._log(AccessRecord(req.method, req.path, status, seconds, getattr(known, "label", ""), outcome))
