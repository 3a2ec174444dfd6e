"""Measure a server over HTTP with a benchmark's prompts: what a client sees of any OpenAI-compatible server.

Knows nothing of how the server decodes. Equality is looked at only where it can be: a greedy prompt that is asked again
should get the same text, and how often it did not is counted, not judged.
"""

from __future__ import annotations

import queue
import statistics
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tensorfold.application.benchmark_cells import percentile
from tensorfold.application.benchmark_prompts import Prompt
from tensorfold.application.benchmark_results import Row
from tensorfold.application.benchmarking import Listener, Outcome
from tensorfold.application.faults import named
from tensorfold.application.ports.benchmarks import ChatServer, ServerFaultError, ServerReply, ServerRequest
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.machine import Clock

SERVER = "server"
"""The one mode of a server: whatever it was started with."""
NOT_STATED = "none stated by the server"
_REFUSING = (400, 422)


@dataclass(frozen=True, slots=True)
class ServerMatrix:
    """What is asked of `model`: every prompt `runs` times, over each number of `streams`, `reply` tokens at most."""

    model: str
    prompts: tuple[Prompt, ...]
    reply: int
    runs: int
    streams: tuple[int, ...]

    @property
    def passes(self) -> int:
        """How often every prompt is asked in a cell: `runs`, and more where some stream would get no request."""
        return max(self.runs, -(-max(self.streams) // len(self.prompts)))


class ServerBenchmark:
    """Runs one matrix against one server."""

    def __init__(self, server: ChatServer, clock: Clock, matrix: ServerMatrix, listener: Listener) -> None:
        self._server = server
        self._clock = clock
        self._matrix = matrix
        self._listener = listener
        self._ignore_eos = True
        self._texts: dict[int, str] = {}
        self._compared = 0
        self._differences = 0
        self._uncounted = False
        self.notes: list[str] = []

    def run(self) -> Outcome:
        """Every cell. Raises RefusedError when the server cannot be measured."""
        try:
            self._warm_up()
            state = self._server.record_state()
            record = NOT_STATED if state is None else f"the server's, {state}"
            rows = tuple(self._cell(record, streams) for streams in self._matrix.streams)
        except ServerFaultError as fault:
            raise RefusedError(fault.message) from None
        if self._uncounted:
            self.notes.append("the server states no usage: events with text were counted as tokens")
        return Outcome(rows, self._compared, self._differences)

    def _warm_up(self) -> None:
        """One reply that nobody measures; it shows whether the server takes `ignore_eos`."""
        try:
            self._server.reply(self._request(0))
        except ServerFaultError as fault:
            if fault.status not in _REFUSING:
                raise
            self._ignore_eos = False
            self._server.reply(self._request(0))
            self.notes.append("the server refuses ignore_eos: replies may end before --tokens")

    def _request(self, at: int) -> ServerRequest:
        prompt = self._matrix.prompts[at]
        return ServerRequest(
            self._matrix.model,
            prompt.turns(),
            self._matrix.reply,
            prompt.temperature,
            prompt.top_p,
            prompt.top_k,
            prompt.seed,
            self._ignore_eos,
        )

    def _cell(self, record: str, streams: int) -> Row:
        count = len(self._matrix.prompts)
        asked = count * self._matrix.passes
        self._listener.began(SERVER, streams, asked)
        began = self._clock.monotonic()
        replies = self._ask([at % count for at in range(asked)], streams)
        row = self._row(record, streams, [reply for _, reply in replies], self._clock.monotonic() - began)
        for at, reply in replies:
            self._compare(row, at % count, reply.text)
        self._listener.measured(row)
        return row

    def _ask(self, prompts: Sequence[int], streams: int) -> list[tuple[int, ServerReply]]:
        """Replies in the order they ended, with their request's number; a fault ends the asking."""
        waiting = deque(enumerate(prompts))
        done: queue.SimpleQueue[tuple[int, ServerReply | ServerFaultError]] = queue.SimpleQueue()

        def work() -> None:
            while waiting:
                try:
                    at, prompt = waiting.popleft()
                except IndexError:
                    return
                try:
                    done.put((at, self._server.reply(self._request(prompt))))
                except ServerFaultError as fault:
                    done.put((at, fault))
                except Exception as fault:
                    done.put((at, ServerFaultError(f"a request of the benchmark failed: {named(fault)}")))

        for _ in range(min(streams, len(prompts))):
            threading.Thread(target=work, name="bench", daemon=True).start()
        replies: list[tuple[int, ServerReply]] = []
        while len(replies) < len(prompts):
            at, reply = done.get()
            if isinstance(reply, ServerFaultError):
                waiting.clear()
                raise reply
            replies.append((at, reply))
            self._listener.replied(len(replies))
        return replies

    def _row(self, record: str, streams: int, replies: Sequence[ServerReply], seconds: float) -> Row:
        counts = [self._tokens(reply) for reply in replies]
        firsts = [reply.first_s for reply in replies if reply.first_s is not None]
        if not firsts:
            raise RefusedError("No reply had any text; nothing can be measured of this server.")
        rates = [
            (tokens - 1) / (reply.last_s - reply.first_s)
            for tokens, reply in zip(counts, replies, strict=True)
            if tokens > 1 and reply.first_s is not None and reply.last_s > reply.first_s
        ]
        return Row(
            mode=SERVER,
            record=record,
            streams=streams,
            replies=len(replies),
            tokens=sum(counts),
            seconds=seconds,
            first_p50_s=percentile(firsts, 50),
            first_p99_s=percentile(firsts, 99),
            rate=sum(counts) / seconds if seconds > 0 else 0.0,
            stream_rate=statistics.median(rates) if rates else 0.0,
        )

    def _tokens(self, reply: ServerReply) -> int:
        if reply.tokens is not None:
            return reply.tokens
        self._uncounted = True
        return reply.pieces

    def _compare(self, row: Row, at: int, text: str) -> None:
        prompt = self._matrix.prompts[at]
        if not prompt.greedy:
            return
        if at not in self._texts:
            self._texts[at] = text
            return
        self._compared += 1
        if text != self._texts[at]:
            if not self._differences:
                self.notes.append(f"first different reply to a repeated greedy prompt: {prompt.name!r}, {row.name}")
            self._differences += 1
