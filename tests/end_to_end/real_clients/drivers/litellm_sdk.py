"""litellm, speaking to an OpenAI-compatible server."""

from __future__ import annotations

import importlib
from typing import Any

from tests.end_to_end.real_clients.drivers.loop import TOOL, Call, Reply, reply, run

litellm: Any = importlib.import_module("litellm")


def _ask(call: Call, **more: Any) -> Any:
    tools = {"tools": [TOOL]} if call["tools"] else {}
    return litellm.completion(
        model=f"openai/{call['model']}",
        api_base=call["base"],
        api_key=call["key"],
        messages=[{"role": "user", "content": call["prompt"]}],
        **tools,
        **call["fields"],
        **more,
    )


def chat(call: Call) -> Reply:
    """A whole reply."""
    said = _ask(call)
    choice = said.choices[0]
    return reply(
        choice.message.content or "", choice.finish_reason, (said.usage.prompt_tokens, said.usage.completion_tokens)
    )


def stream(call: Call) -> Reply:
    """A stream, put together; `leave` closes it after its second piece: a break alone leaves the connection open."""
    text, finish, usage, pieces = "", None, None, 0
    events = _ask(call, stream=True, stream_options={"include_usage": True})
    for event in events:
        if getattr(event, "usage", None) is not None:
            usage = (event.usage.prompt_tokens, event.usage.completion_tokens)
        for choice in event.choices:
            pieces += bool(choice.delta.content)
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
        if call["op"] == "leave" and pieces == 2:
            events.close()
            break
    return reply(text, finish, usage, pieces)


if __name__ == "__main__":
    run({"chat": chat, "stream": stream, "leave": stream})
