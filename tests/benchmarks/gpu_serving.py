"""Many streams on one card: shared rounds without drafts, every reply equal to its solo run; then the same over HTTP.

Rates are those of the time in which every stream decodes. HTTP is the product's own server and a reader in a process of
its own; what it costs is how much slower the same streams come there.
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
from tensorfold.application.replies import token_sha
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import HttpSettings, SamplingDefaults
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.server import HttpServer
from tests.benchmarks.gpu_engine import RECORD_OFF, ask, ask_all, prompt_ids, rate_between, request, running, together
from tests.benchmarks.gpu_figures import Bound
from tests.benchmarks.gpu_model import Measures, Say
from tests.fakes.clock import MachineClock
from tests.fakes.tokenizer import FakeTemplate, FakeTokenizer

STREAMS = (1, 4, 8, 16, 32)
PROMPT, REPLY = 200, 160
BOUNDS: dict[str, tuple[Bound, ...]] = {
    "qwen": (
        Bound("8 streams tokens/s", least=1200, aim=1550),
        Bound("32 streams tokens/s", least=2700, aim=3800),
        Bound("cost of HTTP", most=0.03),
        Bound("differences", most=0),
    ),
    "nemotron": (Bound("8 streams tokens/s", least=2000), Bound("differences", most=0)),
    "llama": (Bound("differences", most=0),),
}


def measure(
    model: TargetModel, say: Say, *, streams: Sequence[int] = STREAMS, reply: int = REPLY, http: bool = True
) -> Measures:
    """Shared rounds at each number of streams, then HTTP at the most of them."""
    made = Measures()
    vocabulary, most = model.limits.vocabulary, max(streams)
    # Half of the streams are sampled: rounds mix both.
    asked = [request(prompt_ids(vocabulary, PROMPT, n), reply, sampled=bool(n % 2)) for n in range(most)]
    rates: dict[int, float] = {}
    with running(model, parallel=most, drafts=False) as scheduler:
        ask(scheduler, asked[0])
        solo = [ask(scheduler, one) for one in asked]
        for count in streams:
            before = scheduler.counters.shared_launches
            found = ask_all(scheduler, asked[:count])
            made.compare(solo[:count], found)
            rates[count] = together(found) if count > 1 else found[0].rate
            shared = scheduler.counters.shared_launches - before
            made.values[f"{count} streams tokens/s"] = rates[count]
            say(f"{count:3} streams: {rates[count]:.1f} tokens/s, {shared} shared rounds")
    made.parts["streams"] = {"tokens/s": rates, "prompt": PROMPT, "reply": reply, "record": RECORD_OFF}
    if http:
        over_http(model, made, say, most, reply)
    return made


def over_http(model: TargetModel, made: Measures, say: Say, streams: int, reply: int) -> None:
    """The same number of streams through the engine alone and through the server, with the same prompts."""
    tokenizer = FakeTokenizer(model.limits.vocabulary)
    contents = [f"stream {number} " * 12 for number in range(streams)]
    prompts = [tuple(tokenizer.encode(f"<|user|>{content}<|end|><|assistant|>")) for content in contents]
    asked = [request(prompt, reply) for prompt in prompts]
    with running(model, parallel=streams, drafts=False) as scheduler:
        solo = [ask(scheduler, one) for one in asked]
        alone = ask_all(scheduler, asked)
        made.compare(solo, alone)
        engine = together(alone)
        with served(scheduler, tokenizer, streams) as http, tempfile.TemporaryDirectory() as folder:
            figures, arrivals = loaded(http.port, Path(folder), contents, reply)
    server = rate_between(arrivals)
    wrong = sum(sha != token_sha(one.ids) for sha, one in zip(figures["token_sha"], solo, strict=True))
    made.differences += wrong * reply
    made.compared += streams * reply
    made.values["differences"] = float(made.differences)
    made.values["cost of HTTP"] = max(0.0, 1 - server / engine)
    made.parts["http"] = {
        "streams": streams, "engine tokens/s": engine, "server tokens/s": server, "whole": figures["whole"],
        "first byte ms": figures["first_byte_ms"], "record": RECORD_OFF,
    }  # fmt: skip
    say(f"HTTP: {server:.1f} tokens/s against {engine:.1f}, {figures['whole']} of {streams} whole {figures['faults']}")


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
