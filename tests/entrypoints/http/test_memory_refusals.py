"""Every refusal of context and memory over HTTP: its words and status, streamed and whole, and the next one runs."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

from tensorfold.application.chat import ChatService
from tensorfold.application.health import HealthService
from tensorfold.application.measures import MeasureService
from tensorfold.application.metering import Meter
from tensorfold.application.settings import HttpSettings, SamplingDefaults
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.server import HttpServer
from tests.application.house import law
from tests.application.memory_house import ROW, Metered, metered
from tests.entrypoints.http.wire import VERSION
from tests.fakes.clock import MachineClock
from tests.fakes.faulty_model import Fault
from tests.fakes.hash_model import HashModel
from tests.fakes.tokenizer import FakeTemplate, FakeTokenizer

TOKENIZER = FakeTokenizer(512)
LIMITS = HttpLimits(threads=16, spare_threads=4, poll_s=0.01, descriptors=256)
WINDOW, ROWS = 200, 100
"""Tokens of the window, and rows that memory holds: less than the window, as when other programs grew."""


@contextmanager
def served(faults: Sequence[Fault] = ()) -> Iterator[tuple[str, Metered]]:
    """The address of a server whose memory exists as numbers."""
    model, meter = HashModel(law(81, vocabulary=512), context=WINDOW), Meter()
    with metered(
        model, ROWS, faults=faults, context=WINDOW, max_tokens=40, token_bytes=TOKENIZER.token_bytes, meter=meter
    ) as house:
        chat: Any = ChatService(
            house.scheduler, TOKENIZER, FakeTemplate(), SamplingDefaults(), MachineClock(), model_names=("hash",)
        )
        health = HealthService(house.scheduler, {})
        server = HttpServer(HttpSettings(port=0), LIMITS, version=VERSION)
        server.start()
        server.ready(chat, health, "hash", MeasureService(house.scheduler, meter, health.status, drafts=True))
        try:
            yield server.url, house
        finally:
            server.stop(0.0)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    kind: str
    text: str


def post(url: str, prompt: int, reply: int | None, *, stream: bool) -> Answer:
    asked: dict[str, Any] = {"prompt": [5] * prompt, "stream": stream, "ignore_eos": True}
    body = json.dumps(asked | ({"max_tokens": reply} if reply else {}))
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30.0)
    try:
        connection.request("POST", f"{place.path}/completions", body)
        got = connection.getresponse()
        return Answer(got.status, got.headers["content-type"], got.read().decode())
    finally:
        connection.close()


def error_of(answer: Answer) -> tuple[int, dict[str, Any]]:
    """The status and the error, of a body or of a stream's last event but `[DONE]`."""
    if answer.kind.startswith("application/json"):
        return answer.status, json.loads(answer.text)["error"]
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    return answer.status, json.loads(events[-2])["error"]


def the_next_runs(url: str) -> None:
    answer = post(url, 10, 20, stream=False)
    assert answer.status == 200 and json.loads(answer.text)["usage"]["completion_tokens"] == 20


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "reply", "words"),
    [
        (250, None, "context length is 200 tokens. However, you requested 251 tokens (250 in the prompt)."),
        (200, 9, "Shorten the prompt to at most 199 tokens. `--context` sets the window at startup."),
        (150, 51, "you requested 201 tokens (150 in the prompt, 51 in the completion). The largest"),
        (150, 51, "reply that fits this prompt is 50 tokens; lower `max_tokens`. `--context` sets"),
    ],
)
def test_what_is_beyond_the_window_is_a_400_before_any_byte_of_a_reply(
    prompt: int, reply: int | None, words: str, stream: bool
) -> None:
    with served() as (url, _):
        status, error = error_of(post(url, prompt, reply, stream=stream))
        assert (status, error["type"], error["code"]) == (400, "invalid_request_error", "context_length_exceeded")
        assert error["param"] == "prompt" and words in error["message"]
        the_next_runs(url)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "reply", "words"),
    [
        (50, 120, "you requested 170 tokens (50 in the prompt, 120 in the completion), for which"),
        (50, 120, "The largest reply that fits this prompt is 50 tokens."),
        (140, None, "you requested 141 tokens (140 in the prompt), for which"),
        (140, None, "Shorten the prompt to at most 99 tokens."),
    ],
)
def test_what_memory_does_not_hold_is_refused_with_what_it_does(
    prompt: int, reply: int | None, words: str, stream: bool
) -> None:
    with served() as (url, _):
        status, error = error_of(post(url, prompt, reply, stream=stream))
        assert status == (200 if stream else 400)
        assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
        assert error["message"].startswith("This model's maximum context length is 100 tokens with the memory there is")
        assert words in error["message"]
        the_next_runs(url)


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_memory_cannot_carry_on_ends_in_an_error_that_names_parallel(stream: bool) -> None:
    with served() as (url, house):
        taken: list[int] = []

        class Thief(Fault):
            def happen(self) -> None:
                if not taken:
                    taken.append(70 * ROW)
                    house.memory.allocate(taken[0])

        house.faults.append(Thief("keep", nth=15))
        status, error = error_of(post(url, 10, None, stream=stream))
        assert status == (200 if stream else 500) and error["type"] == "server_error"
        assert "`--parallel`" in error["message"] and "memory ran out" in error["message"]
        house.memory.free(taken[0])
        the_next_runs(url)


@pytest.mark.parametrize("stream", [False, True])
def test_memory_that_cannot_be_had_ends_one_request_with_an_error_that_names_parallel(stream: bool) -> None:
    with served([Fault("prefill", times=1, error=lambda: MemoryError("no bytes"))]) as (url, _):
        status, error = error_of(post(url, 10, 20, stream=stream))
        assert status == (200 if stream else 500) and error["type"] == "server_error"
        assert "memory could not be had" in error["message"] and "`--parallel`" in error["message"]
        assert "no bytes" not in error["message"]
        the_next_runs(url)
