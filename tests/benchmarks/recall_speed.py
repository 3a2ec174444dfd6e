"""What the record is worth on the demo, and what it costs where there is nothing to copy.

A repeated request is measured over HTTP against the same request on a server without a record, decode seconds as the
replies state them; then again after the server was stopped and started on the same record. Replies must be the same
tokens everywhere. The cost is measured in this process: the time the engine's thread spends in the record, for a
request whose text the record has never seen. All records lie in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold.application.recall import RecallService
from tensorfold.application.replies import Ended, GenerationRequest, Landed
from tensorfold.domain.drafting.sources import CHAINS, DraftSource, Proposal, Widths
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_BYTES
from tensorfold.domain.sampling import Sampling, derive_seed
from tensorfold.entrypoints.cli.opening import check, schedule
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import cache_folder, run_settings
from tests.end_to_end.served import Served, served

LEAST_SPEEDUP = 2.5
MOST_SHARE = 0.005
LEAST_REPLY = 192
REPLY = 224
CHUNKS = 16
QUESTIONS = (
    "Write a long story about a lighthouse keeper who finds a map in an old coat.",
    "Explain in detail how bread is made, from the field to the table.",
    "Describe a day in a small harbour town, hour by hour, with its people and weather.",
)


@dataclass(frozen=True, slots=True)
class Timed:
    """One reply over HTTP."""

    sha: str
    tokens: int
    decode_s: float

    @property
    def rate(self) -> float:
        return (self.tokens - 1) / self.decode_s


def ask(port: int, content: str) -> Timed:
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": REPLY,
        "temperature": 0.8,
        "ignore_eos": True,
    }
    with urllib.request.urlopen(_post(port, body), timeout=600) as answer:
        reply = json.load(answer)
    figures = reply["tensorfold"]
    return Timed(figures["token_sha"], reply["usage"]["completion_tokens"], figures["decode_s"])


def _post(port: int, body: dict[str, Any]) -> urllib.request.Request:
    return urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )


def record_of(port: int) -> dict[str, Any]:
    """GET /v1/recall."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/recall", timeout=60) as answer:
        report: dict[str, Any] = json.load(answer)
    return report


@contextmanager
def server(home: Path, model: str, *flags: str) -> Iterator[int]:
    """The port of a running server; ended as a user would end it."""
    with served(["serve", model, "--port", "0", *flags], home) as running:
        yield running.port
        running.command.interrupt()
        _ended(running)


def _ended(running: Served) -> None:
    if (code := running.ended()) != 0:
        raise RuntimeError(f"the server ended with {code}")


def measure_speed(model: str) -> tuple[dict[str, float], list[str], str]:
    """Speed-ups by name, what is wrong, and the figures in words."""
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tensorfold-speed-") as folder:
        home = Path(folder)
        (home / "cache").symlink_to(cache_folder({}).parent)
        flags = ("--recall-dir", str(home / "record"))
        with server(home, model) as port:
            for question in QUESTIONS:
                ask(port, question)
            plain = [ask(port, question) for question in QUESTIONS]
        with server(home, model, *flags) as port:
            first = [ask(port, question) for question in QUESTIONS]
            again = [ask(port, question) for question in QUESTIONS]
        with server(home, model, *flags) as port:
            before = record_of(port)
            while before["state"] == "loading":
                time.sleep(0.1)
                before = record_of(port)
            restarted = [ask(port, question) for question in QUESTIONS]
            after = record_of(port)
    for name, replies in (("first", first), ("repeated", again), ("after the restart", restarted)):
        if [r.sha for r in replies] != [r.sha for r in plain]:
            wrong.append(f"the tokens differ: {name}")
    if min(r.tokens for r in plain) < LEAST_REPLY:
        wrong.append(f"a reply has under {LEAST_REPLY} tokens")
    landed = after["landed_tokens"] - before["landed_tokens"]
    if landed < LEAST_REPLY:
        wrong.append("GET shows too few landed copies after the restart")
    ratios = {"repeated": _ratio(again, plain), "restarted": _ratio(restarted, plain)}
    words = (
        f"{_rate(plain):.1f} tokens/s without, {_rate(again):.1f} repeated, {_rate(restarted):.1f} after a restart "
        f"({landed} copied tokens landed of {after['offered_tokens'] - before['offered_tokens']}, as GET shows)"
    )
    return ratios, wrong, words


def _rate(replies: Sequence[Timed]) -> float:
    return statistics.median(r.rate for r in replies)


def _ratio(fast: Sequence[Timed], slow: Sequence[Timed]) -> float:
    """The least ratio over the questions: none may be slow."""
    return min(f.rate / s.rate for f, s in zip(fast, slow, strict=True))


# -- the cost ----------------------------------------------------------------------------------------------------


class TimedFactory:
    """The record's sources and recorder, with the seconds that the engine's thread spends in them."""

    def __init__(self, service: RecallService) -> None:
        self._service = service
        self.spent_s = 0.0

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> DraftSource:
        began = time.perf_counter()
        source = self._service.factory.open(prompt, widths)
        self.spent_s += time.perf_counter() - began
        return _TimedSource(source, self)

    def began(self) -> int:
        return self._service.began()

    def record(self, tokens: Sequence[int], resumed: int, began: int) -> None:
        start = time.perf_counter()
        self._service.record(tokens, resumed, began)
        self.spent_s += time.perf_counter() - start


class _TimedSource:
    """One stream's source, timed."""

    def __init__(self, inner: DraftSource, owner: TimedFactory) -> None:
        self._inner = inner
        self._owner = owner
        self.name = inner.name

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        began = time.perf_counter()
        proposal = self._inner.propose(tokens, limit)
        self._owner.spent_s += time.perf_counter() - began
        return proposal

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        began = time.perf_counter()
        self._inner.observe(source, drafted, kept, tokens)
        self._owner.spent_s += time.perf_counter() - began


def measure_cost(model: str) -> tuple[float, str]:
    """Share of a reply's time that is spent in a full record which holds nothing of it, and the figures in words."""
    settings = run_settings(parse(["verify", model]), {})
    container = Container(cache=cache_folder({}))
    checked = check(settings, container, lambda line: None)
    with tempfile.TemporaryDirectory(prefix="tensorfold-speed-") as folder:
        service: RecallService = container.recall(
            folder=Path(folder),
            identity=RecordIdentity(checked.tokenizer.record_digest, checked.tokenizer.vocabulary, checked.name),
            budget_bytes=CHUNKS * CHUNK_BYTES,
            read_only=False,
            log=lambda line: None,
        )
        service.open()
        service.start()
        service.wait_loaded(60.0)
        timed = TimedFactory(service)
        scheduler = schedule(checked, settings, container, lambda line: None, more_sources=(timed,), recorder=timed)
        scheduler.start()
        try:
            scheduler.wait_ready()
            _fill(service, checked.tokenizer.vocabulary)
            prompt = tuple(checked.tokenizer.encode(QUESTIONS[0] * 8))
            timed.spent_s = 0.0
            request = GenerationRequest(
                prompt, Sampling(derive_seed(prompt), 0.8), LEAST_REPLY, ignore_eos=True, draft=True
            )
            generation = scheduler.submit(request)
            while isinstance(event := generation.next(600.0), Landed):
                pass
        finally:
            scheduler.stop(30.0)
            service.close()
    if not isinstance(event, Ended):
        raise RuntimeError(f"the reply did not end: {event}")
    if any("recall" in source.source for source in event.stats.sources):
        raise RuntimeError("something was copied where nothing repeats")
    spent, rounds, ids = timed.spent_s, event.stats.rounds, service.report().ids
    share = spent / event.stats.decode_s
    return share, f"{1e6 * spent / rounds:.0f} us a round over {rounds} rounds beside {ids:,} ids"


def _fill(service: RecallService, vocabulary: int) -> None:
    """Ids by the same law of frequency as text, but no text."""
    import numpy as np

    rng = np.random.default_rng(5)
    for _ in range(48):
        ids = np.minimum(rng.zipf(1.2, 40_000), vocabulary) - 1
        service.record(ids.tolist(), 0, service.began())
        service.settle(60.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="fail when a least figure is missed")
    parser.add_argument("--model", default="demo", help="a model name or folder")
    flags = parser.parse_args()
    share, cost = measure_cost(flags.model)
    ratios, missed, words = measure_speed(flags.model)
    for name, ratio in ratios.items():
        if ratio < LEAST_SPEEDUP:
            missed.append(f"{name}: under {LEAST_SPEEDUP} times as fast")
    if share > MOST_SHARE:
        missed.append(f"over {100 * MOST_SHARE:.1f}% of the time is spent in the record")
    tokens = "DIFFER" if any("differ" in line for line in missed) else "equal"
    print(
        f"record on {Path(flags.model).name} (state on, temporary folder): a repeated request {ratios['repeated']:.2f} "
        f"times as fast, {ratios['restarted']:.2f} after a restart (at least {LEAST_SPEEDUP}), least of "
        f"{len(QUESTIONS)} replies of {REPLY} tokens, tokens {tokens}: "
        f"{words}; nothing to copy: {100 * share:.3f}% of the time (at most {100 * MOST_SHARE:.1f}%), {cost}"
        f"{'; MISSED: ' + ', '.join(missed) if missed else ''}"
    )
    return 1 if missed and flags.require else 0


if __name__ == "__main__":
    sys.exit(main())
