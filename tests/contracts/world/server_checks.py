"""Chat servers: replies with their text, count and times, models, a record's state, and refusals in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.application.ports.benchmarks import ChatServer, ServerFaultError, ServerRequest
from tests.contracts.candidates import refuses, sentence

ASKED = ServerRequest("m", [{"role": "user", "content": "Hi"}], 8, 0.0, 1.0)
TEXT, TOKENS, STATE = "Good morning", 3, "on"


@dataclass(frozen=True, slots=True)
class ServerSubject:
    """A server that says TEXT in TOKENS tokens and has a record, and the hand that makes it refuse everything."""

    server: ChatServer
    refuse: Callable[[], None]
    close: Callable[[], None] = lambda: None


def a_reply_is_its_text_its_count_and_its_times(subject: ServerSubject) -> None:
    """The first text comes no later than the last, and the last no later than the end."""
    reply = subject.server.reply(ASKED)
    assert (reply.text, reply.tokens) == (TEXT, TOKENS) and reply.pieces > 0
    assert reply.first_s is not None and 0 <= reply.first_s <= reply.last_s <= reply.seconds


def a_server_names_its_models_and_its_record(subject: ServerSubject) -> None:
    """At least one model."""
    assert subject.server.models() and subject.server.record_state() == STATE


def what_a_server_refuses_is_one_sentence(subject: ServerSubject) -> None:
    """Of replies and of models; a record that it does not tell of is none."""
    subject.refuse()
    for ask in (lambda: subject.server.reply(ASKED), subject.server.models):
        sentence(refuses(ask, ServerFaultError))
    assert subject.server.record_state() is None
