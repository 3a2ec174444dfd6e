"""OpenAI's Python client."""

from __future__ import annotations

import openai

from tests.end_to_end.real_clients.drivers.loop import TOOL, Call, Reply, reply, run


def _arguments(call: Call) -> dict[str, object]:
    messages = [{"role": "user", "content": call["prompt"]}]
    tools = {"tools": [TOOL]} if call["tools"] else {}
    return {"model": call["model"], "messages": messages, **tools, **call["fields"]}


def _client(call: Call) -> openai.OpenAI:
    return openai.OpenAI(base_url=call["base"], api_key=call["key"])


def chat(call: Call) -> Reply:
    """A whole reply."""
    with _client(call) as client:
        said = client.chat.completions.create(**_arguments(call))  # type: ignore[call-overload]
    choice = said.choices[0]
    return reply(
        choice.message.content or "", choice.finish_reason, (said.usage.prompt_tokens, said.usage.completion_tokens)
    )


def stream(call: Call) -> Reply:
    """A stream, put together; `leave` closes it after its second piece of text."""
    text, finish, usage, pieces = "", None, None, 0
    with _client(call) as client:
        events = client.chat.completions.create(  # type: ignore[call-overload]
            stream=True, stream_options={"include_usage": True}, **_arguments(call)
        )
        for event in events:
            if event.usage is not None:
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
