"""LangChain's chat model for OpenAI-compatible servers."""

from __future__ import annotations

import importlib
from typing import Any

from tests.end_to_end.real_clients.drivers.loop import TOOL, Call, Reply, reply, run

ChatOpenAI: Any = importlib.import_module("langchain_openai").ChatOpenAI


def _model(call: Call) -> Any:
    model = ChatOpenAI(
        model=call["model"], base_url=call["base"], api_key=call["key"], stream_usage=True, **call["fields"]
    )
    return model.bind_tools([TOOL]) if call["tools"] else model


def _usage(said: Any) -> tuple[int, int] | None:
    usage = said.usage_metadata
    return None if usage is None else (usage["input_tokens"], usage["output_tokens"])


def chat(call: Call) -> Reply:
    """A whole reply."""
    said = _model(call).invoke(call["prompt"])
    return reply(said.content, said.response_metadata["finish_reason"], _usage(said))


def stream(call: Call) -> Reply:
    """A stream, put together; `leave` closes it after its second piece of text."""
    text, finish, usage, pieces = "", None, None, 0
    events = _model(call).stream(call["prompt"])
    for event in events:
        pieces += bool(event.content)
        text += event.content
        usage = _usage(event) or usage
        finish = event.response_metadata.get("finish_reason", finish)
        if call["op"] == "leave" and pieces == 2:
            events.close()
            break
    return reply(text, finish, usage, pieces)


if __name__ == "__main__":
    run({"chat": chat, "stream": stream, "leave": stream})
