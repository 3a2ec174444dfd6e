"""What 64 streams over HTTP cost the host, and how late the engine's rounds come while they are read.

The whole server runs here over the hash model: scheduler, engine, Falcon, waitress, server-sent events. The readers are
a process of their own. Host time is this process's CPU time, all threads, less the CPU time spent inside the hash
model; lateness is how long after its 10 ms tick a paced round's draws come back to the engine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tensorfold.application.chat import ChatService
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.health import HealthService
from tensorfold.application.ports.target_model import Draws, RoundBatch, TargetModel, Ticket
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings, HttpSettings, SamplingDefaults
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.server import HttpServer
from tests.fakes.clock import MachineClock
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase, serial_references
from tests.fakes.tokenizer import FakeTemplate, FakeTokenizer
from tests.fakes.wrapped_model import WrappedModel

STREAMS = 64
MOST_US_PER_TOKEN = 80.0
AIM_US_PER_TOKEN = 40.0
TICK_S = 0.010
MOST_LATE_MS = 5.0
TOKENIZER = FakeTokenizer(512)
LAW = HashLaw(vocabulary=512, salt=7)


class MeasuredModel(WrappedModel):
    """Adds up the CPU time of the calls below it; with `tick_s`, draws come on an even tick and lateness is kept."""

    def __init__(self, inner: TargetModel, tick_s: float = 0.0) -> None:
        super().__init__(inner)
        self.cpu_s = 0.0
        self.late_ms: list[float] = []
        self._tick_s = tick_s
        self._due = 0.0

    def launch(self, batch: RoundBatch) -> Ticket:
        ticket: Ticket = self._timed(lambda: self.inner.launch(batch))
        return ticket

    def collect(self, ticket: Ticket) -> Draws:
        draws: Draws = self._timed(lambda: self.inner.collect(ticket))
        if self._tick_s:
            self._wait()
        return draws

    def keep(self, ticket: Ticket, paths: Any) -> None:
        self._timed(lambda: self.inner.keep(ticket, paths))

    def _timed(self, call: Callable[[], Any]) -> Any:
        began = time.thread_time()
        try:
            return call()
        finally:
            self.cpu_s += time.thread_time() - began

    def _wait(self) -> None:
        now = time.monotonic()
        if self._due == 0.0 or now > self._due + 1.0:
            self._due = now
        self._due += self._tick_s
        time.sleep(max(0.0, self._due - now))
        self.late_ms.append(1000.0 * (time.monotonic() - self._due))


@contextmanager
def server(model: MeasuredModel) -> Iterator[HttpServer]:
    """The product's server over `model`, drafts off so that every round is one token a stream."""
    settings = EngineSettings(parallel=STREAMS, queue=STREAMS)
    clock, counters = MachineClock(), Counters()

    def load() -> tuple[Engine, StreamFactory]:
        engine = Engine(model, settings, clock, sources=(CopySourceFactory(),), counters=counters)
        return engine, StreamFactory(
            context=8192, max_tokens=4096, stop_ids=frozenset(), token_bytes=TOKENIZER.token_bytes
        )

    scheduler = Scheduler(load, settings, clock, counters=counters)
    http = HttpServer(HttpSettings(port=0), HttpLimits.for_load(STREAMS, STREAMS), version="bench")
    http.start()
    scheduler.start()
    scheduler.wait_ready()
    chat = ChatService(
        scheduler, TOKENIZER, FakeTemplate(), SamplingDefaults(max_tokens=4096), clock, model_names=("hash",)
    )
    http.ready(chat, HealthService(scheduler, {}), "hash")
    try:
        yield http
    finally:
        http.stop(1.0)
        scheduler.stop(10.0)


def prepare(tokens: int, folder: Path) -> None:
    """Write sixty-four greedy requests of `tokens` tokens each and the texts their replies must have."""
    texts, bodies = [], []
    for index in range(STREAMS):
        content = f"stream {index}"
        prompt = tuple(TOKENIZER.encode(f"<|user|>{content}<|end|><|assistant|>"))
        reply = serial_references(LAW, [SerialCase(prompt, tokens)])[0].tokens
        texts.append(b"".join(TOKENIZER.token_bytes.of(t) for t in reply).decode("utf-8", "replace"))
        bodies.append(
            {"messages": [{"role": "user", "content": content}], "max_tokens": tokens, "temperature": 0, "draft": True}
        )
    (folder / "bodies.json").write_text(json.dumps(bodies))
    (folder / "texts.json").write_text(json.dumps(texts))


def load(port: int, folder: Path) -> dict[str, Any]:
    """Send the prepared requests from another process, which reads and checks the replies; its figures."""
    command = [
        sys.executable, "-m", "tests.benchmarks.http_load", "--port", str(port), "--streams", str(STREAMS),
        "--bodies", str(folder / "bodies.json"), "--expect", str(folder / "texts.json"),
    ]  # fmt: skip
    done = subprocess.run(command, text=True, capture_output=True)
    if not done.stdout.strip():
        raise RuntimeError(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def host_time(tokens: int, folder: Path) -> dict[str, Any]:
    """Host microseconds per streamed token with rounds back to back."""
    model = MeasuredModel(HashModel(LAW, max_streams=STREAMS, batch_rows=STREAMS, max_lanes=STREAMS, prefill_slice=64))
    with server(model) as http:
        prepare(8, folder)
        load(http.port, folder)
        prepare(tokens, folder)
        cpu, inside = time.process_time(), model.cpu_s
        figures = load(http.port, folder)
        cpu, inside = time.process_time() - cpu, model.cpu_s - inside
    streamed = STREAMS * tokens
    return {
        "us_per_token": 1e6 * (cpu - inside) / streamed,
        "model_us_per_token": 1e6 * inside / streamed,
        "whole": figures["whole"],
        "events": figures["events"],
        "tokens": streamed,
    }


def lateness(tokens: int, folder: Path) -> dict[str, Any]:
    """How late rounds paced 10 ms apart come while 64 readers are served."""
    model = MeasuredModel(
        HashModel(LAW, max_streams=STREAMS, batch_rows=STREAMS, max_lanes=STREAMS, prefill_slice=64), TICK_S
    )
    prepare(tokens, folder)
    with server(model) as http:
        figures = load(http.port, folder)
    late = sorted(model.late_ms[10:])
    return {
        "p50_ms": late[len(late) // 2],
        "p99_ms": late[int(0.99 * len(late))],
        "most_ms": late[-1],
        "rounds": len(late),
        "whole": figures["whole"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="fail when a least figure is missed")
    parser.add_argument("--tokens", type=int, default=400)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cost = host_time(flags.tokens, folder)
        paced = lateness(flags.tokens, folder)
    missed = []
    if cost["us_per_token"] > MOST_US_PER_TOKEN:
        missed.append(f"host time over {MOST_US_PER_TOKEN:.0f} us a token")
    if paced["p99_ms"] > MOST_LATE_MS:
        missed.append(f"round lateness p99 over {MOST_LATE_MS:.0f} ms")
    if cost["whole"] != STREAMS or paced["whole"] != STREAMS:
        missed.append("a stream lost, reordered or changed something")
    print(
        f"http_streams: {cost['us_per_token']:.1f} us of host time a streamed token (at most {MOST_US_PER_TOKEN:.0f}, "
        f"aim {AIM_US_PER_TOKEN:.0f}; hash model {cost['model_us_per_token']:.1f} us subtracted), {STREAMS} streams, "
        f"{cost['tokens']} tokens, {cost['whole']} + {paced['whole']} streams whole; rounds 10 ms apart late by "
        f"p50 {paced['p50_ms']:.2f}, p99 {paced['p99_ms']:.2f} (at most {MOST_LATE_MS:.0f}), "
        f"most {paced['most_ms']:.2f} ms over {paced['rounds']} rounds"
        f"{'; MISSED: ' + ', '.join(missed) if missed else ''}"
    )
    return 1 if missed and flags.require else 0


if __name__ == "__main__":
    sys.exit(main())
