"""The demo as a user meets it: OpenAI's client is told Paris, streamed, whole, serial, alone and among others.

The demo's checkpoint comes from the user's cache, the installed package or a download: its absence fails.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.end_to_end.clients import Client, get, post_bytes
from tests.end_to_end.commands import listened
from tests.end_to_end.served import Served, at_once, client_of, served, streamed, whole

pytestmark = [pytest.mark.demo, pytest.mark.slow]

QUESTION = "What is the capital of France?"
OTHERS = (
    "Repeat this list five times, exactly: apple, banana, cherry, date, elderberry, fig, grape.",
    "Write a Python function that adds two numbers.",
    "Translate to French: The cat sat on the mat, the dog sat on the cat.",
)
SAMPLINGS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.9, "seed": 7},
    {"temperature": 1.1, "top_p": 0.95},
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    base = os.environ.get("XDG_CACHE_HOME")
    cache = Path(base) if base else Path("~/.cache").expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    (home / "cache").symlink_to(cache)
    with served(["demo", "--port", "0"], home) as server:
        yield server


@pytest.fixture(scope="module")
def client(demo: Served) -> Iterator[openai.OpenAI]:
    with client_of(demo.port) as made:
        yield made


def test_the_capital_of_france_is_paris_streamed_whole_and_serial(client: openai.OpenAI) -> None:
    said = whole(client, QUESTION, temperature=0, max_tokens=40)
    assert "Paris" in said.text and said.finish == "stop"
    assert streamed(client, QUESTION, temperature=0, max_tokens=40) == said
    assert whole(client, QUESTION, temperature=0, max_tokens=40, draft=False) == said


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_four_clients_at_once_get_their_solo_replies(client: openai.OpenAI, sampling: dict[str, Any]) -> None:
    questions = (QUESTION, *OTHERS)
    solo = [whole(client, question, max_tokens=16, **sampling) for question in questions]
    assert at_once(client, questions, max_tokens=16, **sampling) == solo
    assert len({said.sha for said in solo}) == len(questions)


def test_drafts_of_a_reply_that_copies_change_nothing(demo: Served, client: openai.OpenAI) -> None:
    before = get(demo.port, "/health")[1]["accepted_total"]
    drafted = streamed(client, OTHERS[0], temperature=0, max_tokens=60)
    assert get(demo.port, "/health")[1]["accepted_total"] - before >= 10
    assert whole(client, OTHERS[0], temperature=0, max_tokens=60, draft=False) == drafted


def test_an_interrupt_with_a_stream_open_ends_with_exit_0_and_frees_the_port(demo: Served) -> None:
    port = demo.port
    reply = Client(port)
    body = b'{"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": true, "stream": true}'
    reply.send(post_bytes("/v1/completions", body))
    reply.receive_events(3)
    demo.command.interrupt()
    answer = reply.answer()
    assert demo.ended() == 0
    assert answer.failed_well and answer.error is not None and answer.error["code"] == "overloaded"
    assert not listened(port)
