"""A tiny checkpoint with each family's template, served by the whole command: thoughts, tools and forms agree.

Its weights are seeded noise, so what it says is noise too: that streamed and whole replies tell the same is what
counts, whatever markers the noise runs into.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.domain.conversation.reading import TOOLS
from tests.end_to_end.served import client_of, served
from tests.synthetic.servable import SERVABLE, write_servable
from tests.synthetic.templates import FAMILIES, template_source

THINKS = {"qwen": True, "nemotron": True, "glm": True, "gemma4": False, "json": False}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_tiny_checkpoint_with_a_familys_template_is_served_alike_streamed_and_whole(
    family: str, tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    write_servable(folder, replace(SERVABLE, context=2048))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "chat_template.jinja").write_text(template_source(family))
    with served(["serve", "tiny", "--port", "0"], tmp_path) as server, client_of(server.port) as client:
        asked: dict[str, Any] = {"model": "tiny", "max_tokens": 48, "messages": [{"role": "user", "content": "hi"}]}
        for fields in (
            {"temperature": 0},
            {"temperature": 1.0, "seed": 5, "tools": list(TOOLS)},
            {"temperature": 1.0, "seed": 6, "extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        ):
            asked_so: dict[str, Any] = asked | fields
            whole = client.chat.completions.create(**asked_so)
            message = whole.choices[0].message
            calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
            reasoning, text = getattr(message, "reasoning_content", None) or "", message.content or ""
            assert streamed(client, asked_so) == (text, reasoning, calls, whole.choices[0].finish_reason)
            assert text + reasoning
            opened = THINKS[family] and "extra_body" not in fields
            assert opened or not reasoning
            details = whole.usage.completion_tokens_details
            assert (details.reasoning_tokens > 0) is opened


def streamed(client: Any, asked: dict[str, Any]) -> tuple[str, str, list[tuple[str, str]], str | None]:
    """Text, reasoning, calls and finish reason of a stream."""
    text, reasoning, finish = "", "", None
    calls: list[list[str]] = []
    for chunk in client.chat.completions.create(**asked, stream=True):
        (choice,) = chunk.choices
        text += choice.delta.content or ""
        reasoning += getattr(choice.delta, "reasoning_content", None) or ""
        finish = choice.finish_reason or finish
        for call in choice.delta.tool_calls or ():
            if call.index == len(calls):
                calls.append([call.function.name, ""])
            calls[call.index][1] += call.function.arguments
    return text, reasoning, [(name, arguments) for name, arguments in calls], finish
