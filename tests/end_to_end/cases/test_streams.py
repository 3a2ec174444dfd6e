"""What a client sees of a scripted reply, streamed and whole: characters, stops, ends, usage, faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tensorfold.application.ports.target_model import Lane, TargetModel
from tests.end_to_end.cases.scripted import END, Token, scripted
from tests.fakes.faulty_model import Fault, FaultyModel, Site
from tests.fakes.tokenizer import SPECIALS

WINDOWS = (1, 3, 6)


class FromThen(Fault):
    """A fault that stays once it has come."""

    def strikes(self, site: Site, lanes: Sequence[Lane], prompts: Sequence[tuple[int, ...]]) -> bool:
        if site != self.site:
            return False
        self.calls += 1
        return self.nth is not None and self.calls >= self.nth


def whole_texts(script: list[Token]) -> list[list[Token]]:
    """A script as it is, a letter a token, and all of its text in one token."""
    text = "".join(token for token in script if isinstance(token, str) and token not in SPECIALS)
    return [script, [*text, END], [text, END]]


@pytest.mark.parametrize("window", WINDOWS)
def test_letters_that_come_byte_by_byte_are_whole_in_every_delta(window: int) -> None:
    script: list[Token] = [b"\xe2", b"\x82", b"\xac", "=", b"\xc5", b"\x99", b"\xf0\x9f\xa6", b"\x89", END]
    with scripted(script, window=window) as server:
        whole, streamed = server.both()
        assert whole.text == streamed.text == "€=ř🦉"
        assert whole.finish == streamed.finish == "stop"
        assert "\ufffd" not in streamed.raw
        assert "\\ufffd" not in streamed.raw


@pytest.mark.parametrize("window", WINDOWS)
def test_a_reply_cut_inside_a_letter_ends_alike_streamed_and_whole(window: int) -> None:
    with scripted(["so", b"\xf0\x9f", b"\xa6\x89", END], window=window) as server:
        whole, streamed = server.both(max_tokens=2)
        assert whole.text == streamed.text == "so\ufffd"
        assert whole.finish == streamed.finish == "length"
        assert whole.usage is not None
        assert whole.usage["completion_tokens"] == 2


def test_usage_that_is_asked_for_comes_once_in_a_chunk_of_its_own_before_the_end() -> None:
    with scripted(["a", "b", END]) as server:
        streamed = server.chat(stream=True, stream_options={"include_usage": True})
        *others, finish, last = streamed.chunks
        assert all(chunk.get("usage") is None for chunk in (*others, finish))
        assert finish["choices"][0]["finish_reason"] == "stop"
        assert last["choices"] == []
        assert last["usage"]["completion_tokens"] == 3
        assert last["usage"]["total_tokens"] == last["usage"]["prompt_tokens"] + 3


def test_every_chunk_of_a_stream_carries_the_same_names_and_the_role_comes_once() -> None:
    with scripted(["a", "b", "c", END]) as server:
        streamed = server.chat(stream=True)
        assert streamed.headers["content-type"].startswith("text/event-stream")
        for name in ("id", "created", "model"):
            assert len({chunk[name] for chunk in streamed.chunks}) == 1
        assert {chunk["object"] for chunk in streamed.chunks} == {"chat.completion.chunk"}
        deltas = [choice["delta"] for chunk in streamed.chunks for choice in chunk["choices"]]
        assert [at for at, delta in enumerate(deltas) if "role" in delta] == [0]
        assert deltas[0]["role"] == "assistant"
        assert streamed.finish == "stop"
        assert streamed.raw.endswith("data: [DONE]\n\n")


def test_a_fault_behind_the_first_tokens_is_one_error_event_and_no_good_end() -> None:
    fault = FromThen("collect", nth=3)
    models: list[FaultyModel] = []

    def faulty(inner: TargetModel) -> FaultyModel:
        models.append(FaultyModel(inner, [fault]))
        return models[0]

    with scripted(["a", "b", "c", "d", END], wrap=faulty) as server:
        streamed = server.chat(stream=True)
        assert streamed.status == 200
        assert streamed.text == "ab"
        assert streamed.error is not None
        assert streamed.error["type"] == "server_error"
        assert streamed.finish is None
        assert not any(word in streamed.raw for word in ("Traceback", "Planted", "planted", ".py"))
        models[0].faults.clear()
        assert server.alive()


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers_before_the_stream_opens() -> None:
    with scripted(context=64) as server:
        for streamed in (False, True):
            said = server.chat("word " * 100, max_tokens=4, stream=streamed)
            assert said.status == 400
            assert said.error is not None
            assert said.error["code"] == "context_length_exceeded"
            assert "maximum context length is 64 tokens" in said.error["message"]
            assert "503" in said.error["message"]
        assert server.prompts[1:] == server.prompts[:1]
        assert server.place.counters.filled_tokens == 0
        assert server.alive()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"user","content":"x \\ud83d y"}',
        b'{"role":"user","content":[{"type":"text","text":"x \\udc00\\ud83d y"}]}',
        b'{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":"{\\"a\\":\\"\\ud83d\\"}"}}]}',
        b'{"role":"assistant","content":"","tool_calls":[{"function":{"name":"\\ud83d","arguments":"{}"}}]}',
    ],
)
def test_half_a_surrogate_pair_is_read_as_a_replacement(message: bytes, streamed: bool) -> None:
    with scripted() as server:
        flag = b"true" if streamed else b"false"
        said = server.ask(b'{"max_tokens":4,"stream":' + flag + b',"messages":[' + message + b"]}")
        assert (said.status, said.text, said.error) == (200, "yes", None)
        assert "\ufffd" in server.prompt or "\\ufffd" in server.prompt


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("script", whole_texts(["one", " two", " three", " four", END]), ids=len)
@pytest.mark.slow
def test_nothing_of_a_stop_string_is_sent_and_all_before_it_is(script: list[Token], window: int) -> None:
    with scripted(script, window=window) as server:
        whole, streamed = server.both(stop=["two three"])
        assert whole.text == streamed.text == "one "
        assert whole.finish == streamed.finish == "stop"
        assert whole.usage == streamed.usage
        assert whole.usage is not None
        # Letter by letter the last one of the stop string ends the reply.
        assert whole.usage["completion_tokens"] <= len("one two three")


@pytest.mark.parametrize(
    ("stop", "status"),
    [(None, 200), ([], 200), ("", 400), ([""], 400), (list("vwxzq"), 200), ([1], 400), ("\0", 200)],
)
def test_odd_stop_strings_are_none_or_refused_and_end_no_reply(stop: Any, status: int) -> None:
    with scripted() as server:
        said = server.chat(stop=stop)
        assert said.status == status
        assert said.text == ("yes" if status == 200 else "")
        assert status == 200 or (said.error is not None and said.error["param"].startswith("stop"))


@pytest.mark.parametrize("window", WINDOWS)
def test_nothing_behind_an_end_token_is_sent_or_counted_though_it_was_drafted_rightly(window: int) -> None:
    with scripted(["a", " b", END, " c", " d", " e"], window=window) as server:
        whole, streamed = server.both(max_tokens=32)
        assert whole.text == streamed.text == "a b"
        assert whole.finish == streamed.finish == "stop"
        assert whole.usage is not None
        assert whole.usage["completion_tokens"] == 3
        assert whole.usage["completion_tokens_details"]["reasoning_tokens"] == 0
        assert window == 1 or server.place.counters.kept_total > 0


@pytest.mark.parametrize("window", WINDOWS)
def test_every_end_token_of_several_ends_a_reply_and_none_is_text(window: int) -> None:
    ends = ("<|first|>", "<|second|>", "<|third|>")
    for end in ends:
        script = ["Oslo", end, "<|user|>", "more"]
        with scripted(script, window=window, specials=(*ends, *SPECIALS), ends=ends) as server:
            whole, streamed = server.both()
            assert whole.text == streamed.text == "Oslo"
            assert whole.finish == streamed.finish == "stop"


@pytest.mark.parametrize("fields", [{}, {"tools": []}, {"tool_choice": "none"}], ids=str)
def test_markup_of_a_call_is_text_where_no_tool_may_be_called(fields: dict[str, Any]) -> None:
    tool = {"type": "function", "function": {"name": "list_files", "parameters": {"type": "object"}}}
    fields = fields if "tool_choice" not in fields else fields | {"tools": [tool]}
    markup = "<tool_call>\n<function=list_files>\n</function>\n</tool_call>"
    with scripted([markup, END]) as server:
        whole, streamed = server.both(**fields)
        assert whole.status == streamed.status == 200
        assert whole.finish == streamed.finish == "stop"
        assert "tool_calls" not in whole.raw
        assert whole.text == streamed.text == markup
        assert "list_files" not in server.prompt
