"""OpenAI's own client against the server: replies, streams, refusals, retries and faults in the middle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest
from openai.types.chat import ChatCompletionUserMessageParam

from tensorfold.application.errors import OverloadedError
from tests.entrypoints.http.fakes import FakeChat, FakeReply, Order, hello, silent
from tests.entrypoints.http.test_server import until
from tests.entrypoints.http.wire import OnSocket, on_socket

USER: ChatCompletionUserMessageParam = {"role": "user", "content": "What is the capital of France?"}


@contextmanager
def client_of(chat: FakeChat | None = None, *, retries: int = 0) -> Iterator[tuple[openai.OpenAI, OnSocket]]:
    with on_socket(chat, keys=(("cli-1", "secret"),)) as server:
        base = f"http://127.0.0.1:{server.server.port}/v1"
        with openai.OpenAI(base_url=base, api_key="secret", max_retries=retries, timeout=30) as client:
            yield client, server


def test_a_plain_and_a_streamed_chat_say_the_same() -> None:
    with client_of() as (client, _):
        plain = client.chat.completions.create(model="tiny", messages=[USER])
        assert plain.choices[0].message.content == "Hello world"
        assert plain.model == "tiny"
        assert plain.usage is not None
        assert plain.usage.total_tokens == plain.usage.prompt_tokens + 4
        assert (plain.model_extra or {})["tensorfold"]["engine"] == "fake"
        stream = client.chat.completions.create(
            model="tiny",
            messages=[USER],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == "Hello world"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 4


def test_completions_take_text_and_ids() -> None:
    with client_of() as (client, _):
        assert client.completions.create(model="tiny", prompt="Once").choices[0].text == "Hello world"
        assert client.completions.create(model="tiny", prompt=[1, 2]).choices[0].text == "Hello world"
        stream = client.completions.create(model="tiny", prompt="Once", stream=True)
        assert "".join(c.choices[0].text for c in stream) == "Hello world"


def test_models_are_listed_and_found() -> None:
    with client_of() as (client, _):
        assert [model.id for model in client.models.list()] == ["org/tiny", "tiny"]
        assert client.models.retrieve("org/tiny").id == "org/tiny"
        with pytest.raises(openai.NotFoundError) as missing:
            client.models.retrieve("other")
        assert missing.value.code == "model_not_found"


def test_refusals_reach_the_client_with_their_code_and_field() -> None:
    with client_of(FakeChat(context=10)) as (client, _):
        with pytest.raises(openai.BadRequestError) as long:
            client.chat.completions.create(model="tiny", messages=[USER], stream=True)
        assert long.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as odd:
            client.chat.completions.create(model="tiny", messages=[USER], logprobs=True)
        assert (odd.value.code, odd.value.param) == ("unsupported_parameter", "logprobs")
        with pytest.raises(openai.AuthenticationError) as unknown:
            client.with_options(api_key="wrong").models.list()
        assert unknown.value.code == "invalid_api_key"


def test_an_error_in_the_middle_of_a_stream_is_told_in_its_words() -> None:
    def script(reply: FakeReply, order: Order) -> None:
        reply.say("a")
        reply.fail("The request failed inside the engine.")

    with client_of(FakeChat(script)) as (client, _):
        stream = client.chat.completions.create(model="tiny", messages=[USER], stream=True)
        with pytest.raises(openai.APIError, match=r"failed inside the engine"):
            list(stream)


@pytest.mark.slow
def test_an_overload_is_retried_and_a_failed_reply_is_not() -> None:
    attempts = 0

    class Busy(FakeChat):
        def chat(self, order: Order) -> FakeReply:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise OverloadedError("The queue is full.", 0)
            return super().chat(order)  # type: ignore[arg-type]

    with client_of(Busy(), retries=2) as (client, _):
        plain = client.chat.completions.create(model="tiny", messages=[USER])
        assert plain.choices[0].message.content == "Hello world"
        assert attempts == 2

    def fails(reply: FakeReply, order: Order) -> None:
        reply.fail("The request failed inside the engine.")

    with client_of(FakeChat(fails), retries=2) as (client, server):
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="tiny", messages=[USER])
        assert len(server.chat.replies) == 1


def test_a_stream_closed_by_the_client_frees_its_reply() -> None:
    with client_of(FakeChat(silent)) as (client, server):
        stream = client.chat.completions.create(model="tiny", messages=[USER], stream=True)
        reply = server.chat.replies[0]
        reply.say("a")
        assert next(iter(stream)).choices[0].delta.role == "assistant"
        stream.close()
        until(reply.cancelled.is_set, "the cancel")


def test_several_clients_at_once_each_get_their_own_reply() -> None:
    def script(reply: FakeReply, order: Order) -> None:
        reply.say(f"max {order.options.max_tokens}")
        hello(reply, order)

    with client_of(FakeChat(script)) as (client, _):
        streams = {
            limit: client.chat.completions.create(
                model="tiny",
                messages=[USER],
                max_tokens=limit,
                stream=True,
            )
            for limit in range(1, 7)
        }
        for limit, stream in streams.items():
            text = "".join(c.choices[0].delta.content or "" for c in stream)
            assert text == f"max {limit}Hello world"
