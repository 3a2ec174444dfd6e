"""The whole way from a socket to the engine's rounds and back, over the hash model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import openai
from openai.types.chat import ChatCompletionUserMessageParam

from tensorfold.application.chat import ChatService
from tensorfold.application.health import HealthService
from tensorfold.application.measures import MeasureService
from tensorfold.application.metering import Meter
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings, HttpSettings, SamplingDefaults
from tensorfold.entrypoints.http import services
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.server import HttpServer
from tests.application.house import idle, law, serving
from tests.entrypoints.http.test_server import until
from tests.entrypoints.http.wire import VERSION, Connection
from tests.fakes.clock import MachineClock
from tests.fakes.hash_model import HashModel
from tests.fakes.tokenizer import FakeTemplate, FakeTokenizer

TOKENIZER = FakeTokenizer(512)
LIMITS = HttpLimits(threads=16, spare_threads=4, poll_s=0.01, descriptors=256)


@contextmanager
def served(parallel: int = 4) -> Iterator[tuple[HttpServer, Scheduler]]:
    """A server over an engine of `parallel` streams."""
    settings = EngineSettings(parallel=parallel, queue=4)
    meter = Meter()
    with serving(
        HashModel(law(41, vocabulary=512)),
        settings=settings,
        context=5000,
        token_bytes=TOKENIZER.token_bytes,
        meter=meter,
    ) as scheduler:
        chat: services.ChatService = ChatService(
            scheduler, TOKENIZER, FakeTemplate(), SamplingDefaults(), MachineClock(), model_names=("hash",)
        )
        health = HealthService(scheduler, {"family": "hash"})
        measures = MeasureService(scheduler, meter, health.status, drafts=True)
        server = HttpServer(HttpSettings(port=0), LIMITS, version=VERSION)
        server.start()
        server.ready(chat, health, "hash", measures)
        try:
            yield server, scheduler
        finally:
            server.stop(0.0)


def asked(word: str) -> list[ChatCompletionUserMessageParam]:
    return [{"role": "user", "content": word}]


def test_streamed_plain_drafted_and_serial_replies_are_one_reply() -> None:
    with served() as (server, _), openai.OpenAI(base_url=server.url, api_key="none") as client:
        plain = client.chat.completions.create(model="hash", messages=asked("hello"), max_tokens=60)
        serial = client.chat.completions.create(
            model="hash", messages=asked("hello"), max_tokens=60, extra_body={"draft": False}
        )
        chunks = list(client.chat.completions.create(model="hash", messages=asked("hello"), max_tokens=60, stream=True))
        text = "".join(c.choices[0].delta.content or "" for c in chunks)
        assert plain.choices[0].message.content == serial.choices[0].message.content == text
        figures = [(answer.model_extra or {})["tensorfold"] for answer in (plain, serial, chunks[-1])]
        assert len({f["token_sha"] for f in figures}) == 1
        assert [f["drafts"] for f in figures] == [True, False, True]
        assert plain.usage is not None
        assert plain.usage.completion_tokens == 60
        assert plain.choices[0].finish_reason == "length"


def test_a_crowd_gets_its_solo_replies() -> None:
    with served() as (server, _), openai.OpenAI(base_url=server.url, api_key="none") as client:
        words = ["one", "two", "three", "four"]
        solo = {}
        for word in words:
            answer = client.chat.completions.create(model="hash", messages=asked(word), max_tokens=80)
            solo[word] = answer.choices[0].message.content
        crowd = {
            word: client.chat.completions.create(model="hash", messages=asked(word), max_tokens=80, stream=True)
            for word in words
        }
        for word, stream in crowd.items():
            assert "".join(c.choices[0].delta.content or "" for c in stream) == solo[word]


def test_clients_that_leave_free_their_lanes_for_those_who_wait() -> None:
    with served(parallel=1) as (server, scheduler):
        leaving = [Connection(server.port) for _ in range(4)]
        for index, client in enumerate(leaving):
            client.send(
                "POST",
                "/v1/completions",
                {"prompt": [1, 2, 3], "max_tokens": 4000, "stream": index % 2 == 0, "ignore_eos": True},
            )
        until(lambda: server.gate.inside == 4, "four requests")
        for client in leaving:
            client.close()
        until(lambda: server.gate.inside == 0, "four departures")
        idle(scheduler)
        with openai.OpenAI(base_url=server.url, api_key="none") as client_after:
            answer = client_after.completions.create(model="hash", prompt="next", max_tokens=5)
            assert answer.usage is not None
            assert answer.usage.completion_tokens >= 1
        assert server.gate.disconnections == 4


def test_health_tells_what_runs() -> None:
    with served() as (server, scheduler):
        client = Connection(server.port)
        client.send("POST", "/v1/completions", {"prompt": [1], "max_tokens": 4000, "stream": True, "ignore_eos": True})
        client.head()
        asking = Connection(server.port)
        deadline = time.monotonic() + 30
        body = b""
        while b'"busy": 1' not in body:
            assert time.monotonic() < deadline, body
            asking.send("GET", "/health")
            status, _, body = asking.answer()
            assert status == 200
        assert b'"family": "hash"' in body
        client.close()
        idle(scheduler)
