"""Prompts that stay warm through the whole command: the next turn, a restart, and a server that keeps nothing."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.end_to_end.served import client_of, served

SYSTEM = {"role": "system", "content": "Rule: be kind, plain and brief. " * 12}
SERVE = ["serve", "tiny", "--port", "0"]


def said(client: openai.OpenAI, *talk: str) -> tuple[str, int]:
    """The fingerprint of a reply, and how many ids of its prompt were not read again."""
    roles = ("user", "assistant")
    messages: list[Any] = [SYSTEM, *({"role": roles[n % 2], "content": text} for n, text in enumerate(talk))]
    answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=8, temperature=0)
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    cached = answer.usage.prompt_tokens_details.cached_tokens
    told = (answer.model_extra or {})["tensorfold"]
    assert told["cached"] == cached
    return told["token_sha"], cached or 0


@pytest.mark.slow
def test_turns_and_restarts_resume_and_their_replies_are_those_of_a_server_that_keeps_nothing(home: Path) -> None:
    folder = home / "states"
    with served([*SERVE, "--snapshot-dir", str(folder)], home) as server, client_of(server.port) as client:
        first, second = said(client, "One?"), said(client, "One?", "1", "Two?")
        server.command.interrupt()
        assert server.ended() == 0
        assert any("cut at assistant messages" in line for line in server.lines())
    assert first[1] == 0 and second[1] >= 256
    files = list(folder.iterdir())
    assert files and all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with served([*SERVE, "--snapshot-dir", str(folder)], home) as server, client_of(server.port) as client:
        again = said(client, "One?", "1", "Two?")
        assert any(f"snapshots: {len(files)} on disk" in line for line in server.lines())
    assert again[0] == second[0] and again[1] >= 256
    plain = [*SERVE, "--prompt-cache-gib", "0", "--snapshot-dir", "none"]
    with served(plain, home) as server, client_of(server.port) as client:
        assert said(client, "One?") == (first[0], 0)
        assert said(client, "One?", "1", "Two?") == (second[0], 0)
        server.command.interrupt()
        assert server.ended() == 0
        assert any(line.endswith("prompt cache: off") for line in server.lines())
    assert list(folder.iterdir()) == files
    assert not list(home.rglob("prefix-snapshots"))
