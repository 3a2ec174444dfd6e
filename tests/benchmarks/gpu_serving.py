"""Many streams on one card: shared rounds without drafts, every reply equal to its solo run; then the same over HTTP.

Rates are those of the time in which every stream decodes, of greedy streams, and of as many of which half are sampled.
What is timed ran once before: a row count's first launch compiles and captures. HTTP is the product's own server and a
reader in a process of its own; what it costs is how much slower the same streams come there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tensorfold.application.chat import ChatService
from tensorfold.application.health import HealthService
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.replies import GenerationRequest, token_sha
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import HttpSettings, SamplingDefaults
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.server import HttpServer
from tests.benchmarks.gpu_engine import (
    RECORD_OFF,
    Reply,
    ask,
    ask_all,
    prompt_ids,
    rate_between,
    request,
    running,
    together,
)
from tests.benchmarks.gpu_figures import Bound
from tests.benchmarks.gpu_model import Measures, Say, stepwise
from tests.fakes.clock import MachineClock
from tests.fakes.tokenizer import FakeTemplate, FakeTokenizer

STREAMS = (1, 4, 8, 16, 32)
MIXED = (8, 32)
REPLY = 160
TURNS = 2
"""Times that the engine and the server are asked for the same streams, in turn; the faster of each counts."""
BOUNDS: dict[str, tuple[Bound, ...]] = {
    "qwen": (
        Bound("8 streams tokens/s", least=1200, aim=1550),
        Bound("32 streams tokens/s", least=2700, aim=3800),
        Bound("8 streams half sampled tokens/s"),
        Bound("32 streams half sampled tokens/s"),
        Bound("cost of HTTP", most=0.03),
        Bound("differences", most=0),
    ),
    "nemotron": (
        Bound("8 streams tokens/s", least=2000),
        Bound("8 streams half sampled tokens/s"),
        Bound("differences", most=0),
    ),
    "llama": (Bound("differences", most=0),),
}


def measure(
    model: TargetModel, say: Say, *, streams: Sequence[int] = STREAMS, reply: int = REPLY, until: float | None = None
) -> Measures:
    """Shared rounds at each number of streams, and HTTP at the most of them; no step is begun behind `until`."""
    made = Measures()
    vocabulary, most = model.limits.vocabulary, max(streams)
    tokenizer = FakeTokenizer(vocabulary)
    contents = [f"stream {number} " * 20 for number in range(most)]
    prompts = [tuple(tokenizer.encode(f"<|user|>{content}<|end|><|assistant|>")) for content in contents]
    greedy = [request(prompt, reply) for prompt in prompts]
    mixed = [request(prompt_ids(vocabulary, 200, n), reply, sampled=bool(n % 2)) for n in range(most)]
    solo: dict[str, list[Reply]] = {}
    with running(model, parallel=most, drafts=False) as scheduler:
        half = "half sampled "
        counts = [count for count in streams if count in MIXED] or [most]
        steps = (
            ("solo", lambda: solo.update(greedy=_solo(scheduler, greedy))),
            ("streams", lambda: shared(scheduler, solo["greedy"], greedy, streams, made, say)),
            ("http", lambda: over_http(scheduler, tokenizer, contents, solo["greedy"], greedy, made, say)),
            ("solo, half sampled", lambda: solo.update(mixed=_solo(scheduler, mixed))),
            ("streams, half sampled", lambda: shared(scheduler, solo["mixed"], mixed, counts, made, say, half)),
        )
        stepwise(steps, made, say, until)
    return made


def _solo(scheduler: Scheduler, asked: Sequence[GenerationRequest]) -> list[Reply]:
    """Each reply by itself."""
    ask(scheduler, asked[0])
    return [ask(scheduler, one) for one in asked]


def shared(
    scheduler: Scheduler,
    solo: Sequence[Reply],
    asked: Sequence[GenerationRequest],
    streams: Sequence[int],
    made: Measures,
    say: Say,
    kind: str = "",
) -> None:
    """So many of the requests at once, greedy ones twice: all are compared, the last is timed.

    Launches are the same for every `kind`, so only the first has any to make.
    """
    rates: dict[int, float] = {}
    for count in streams:
        if not kind:
            made.compare(solo[:count], ask_all(scheduler, asked[:count]))
        before = scheduler.counters.shared_launches
        found = ask_all(scheduler, asked[:count])
        rounds = scheduler.counters.shared_launches - before
        made.compare(solo[:count], found)
        rates[count] = together(found) if count > 1 else found[0].rate
        made.values[f"{count} streams {kind}tokens/s"] = rates[count]
        say(f"{count:3} streams {kind}: {rates[count]:.1f} tokens/s, {rounds} shared rounds")
    prompt, reply = len(asked[0].prompt), asked[0].max_tokens
    made.parts[f"streams {kind}".strip()] = {
        "tokens/s": rates, "prompt": prompt, "reply": reply, "record": RECORD_OFF,
    }  # fmt: skip


def over_http(
    scheduler: Scheduler,
    tokenizer: FakeTokenizer,
    contents: Sequence[str],
    solo: Sequence[Reply],
    asked: Sequence[GenerationRequest],
    made: Measures,
    say: Say,
) -> None:
    """All streams through the engine alone and through the server, in turn, with the same prompts."""
    streams, reply = len(asked), len(solo[0].ids)
    engine, server = [], []
    figures: dict[str, Any] = {}
    with served(scheduler, tokenizer, streams) as http, tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            alone = ask_all(scheduler, asked)
            made.compare(solo, alone)
            engine.append(together(alone))
            figures, arrivals = loaded(http.port, Path(folder), contents, reply)
            server.append(rate_between(arrivals))
            wrong = sum(sha != token_sha(one.ids) for sha, one in zip(figures["token_sha"], solo, strict=True))
            made.differences += wrong * reply
            made.compared += streams * reply
    made.values["differences"] = float(made.differences)
    made.values["cost of HTTP"] = max(0.0, 1 - max(server) / max(engine))
    made.parts["http"] = {
        "streams": streams, "engine tokens/s": engine, "server tokens/s": server, "whole": figures["whole"],
        "first byte ms": figures["first_byte_ms"], "record": RECORD_OFF,
    }  # fmt: skip
    say(
        f"HTTP: {max(server):.1f} tokens/s against {max(engine):.1f}, {figures['whole']} of {streams} whole "
        f"{figures['faults']}"
    )


@contextmanager
def served(scheduler: Scheduler, tokenizer: FakeTokenizer, streams: int) -> Iterator[HttpServer]:
    """The product's server over a running scheduler."""
    server = HttpServer(HttpSettings(port=0), HttpLimits.for_load(streams, streams), version="benchmark")
    server.start()
    chat = ChatService(
        scheduler, tokenizer, FakeTemplate(), SamplingDefaults(max_tokens=4096), MachineClock(), model_names=("true",)
    )
    server.ready(chat, HealthService(scheduler, {}), "true")
    try:
        yield server
    finally:
        server.stop(1.0)


def loaded(
    port: int, folder: Path, contents: Sequence[str], reply: int
) -> tuple[dict[str, Any], list[list[tuple[float, float]]]]:
    """Send one request for each content from another process: its figures, and when each piece of text arrived."""
    bodies = [
        {
            "messages": [{"role": "user", "content": content}],
            "max_tokens": reply,
            "temperature": 0,
            "ignore_eos": True,
            "draft": False,
        }
        for content in contents
    ]
    (folder / "bodies.json").write_text(json.dumps(bodies))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.benchmarks.http_load", "--port", str(port)),
            *("--streams", str(len(bodies)), "--bodies", str(folder / "bodies.json")),
            *("--arrivals", str(folder / "arrivals.json")),
        ],
        text=True,
        capture_output=True,
        check=False,
    )
    if not done.stdout.strip():
        raise RuntimeError(done.stderr)
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    times = json.loads((folder / "arrivals.json").read_text())
    # A piece of text may hold several tokens: those of a stream are spread evenly over its pieces.
    return figures, [[(at / 1e9, reply / len(stream)) for at in stream] for stream in times if stream]
