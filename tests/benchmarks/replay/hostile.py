"""Records made to mislead: they hold what a stream is about to read, followed by what it will not say.

Whoever fills such a record knows the replies. In each shape the longest match breaks at once, wherever it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tests.benchmarks.replay.speech import Speech
from tests.benchmarks.replay.texts import source_files
from tests.benchmarks.replay.workload import Request, Workload

STREAMS = 8
PROMPT, REPLY = 600, 700
WRONG = 40
KEY, SPAN, STEP = 16, 70, 8


def hostile(speech: Speech) -> tuple[Workload, ...]:
    """The same streams against each shape of record."""
    streams = tuple(_streams(speech))
    wrong = _Wrong(speech)
    prompts = tuple(wrong.after(request.prompt) for request in streams)
    keys = tuple(run for request in streams for run in wrong.after_each(request, KEY, 1))
    spans = tuple(run for request in streams for run in wrong.after_each(request, SPAN, STEP))
    return (
        Workload("hostile prompts", "each prompt, then wrong ids", (), streams, prompts),
        Workload("hostile keys", "each 16 ids of each reply, then wrong ids", (), streams, keys),
        Workload("hostile spans", "70 ids up to each 8th of each reply, then wrong ids", (), streams, spans),
        Workload(
            "hostile turn",
            "as keys, after the record proved right for as many other streams",
            tuple(_streams(speech, STREAMS)),
            streams,
            keys,
            tuple(_streams(speech, STREAMS)),
        ),
    )


class _Wrong:
    """Runs of known ids that go on with ids the reply does not have there."""

    def __init__(self, speech: Speech) -> None:
        self._vocabulary = speech.vocabulary
        self._end = speech.end
        self._count = 0

    def after(self, known: Sequence[int]) -> tuple[int, ...]:
        """`known`, then WRONG ids unlike those behind any other run."""
        self._count += 1
        return (*known, *(self._plain(self._count * 7919 + 31 * i) for i in range(WRONG)))

    def after_each(self, request: Request, length: int, step: int) -> Iterator[tuple[int, ...]]:
        """The `length` ids up to each `step`th place of a reply, each followed by wrong ids."""
        ids = (*request.prompt, *request.reply)
        for at in range(len(request.prompt), len(ids), step):
            run = self.after(ids[at - length : at])
            yield run if run[length] != ids[at] else self.after(ids[at - length : at])

    def _plain(self, number: int) -> int:
        token = number % self._vocabulary
        return token if token != self._end else 0


def _streams(speech: Speech, skipped: int = 0) -> Iterator[Request]:
    """Modules half shown in the prompt and continued in the reply."""
    for name, text in islice(source_files(9000, 60000), skipped, skipped + STREAMS):
        ids = speech.encode(text)
        prompt = (*speech.turn("user", f"Go on with {name}."), *ids[:PROMPT], *speech.opening())
        yield Request(prompt, (*ids[PROMPT : PROMPT + REPLY], speech.end))
