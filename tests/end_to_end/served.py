"""`tensorfold serve` in a process of its own, waited for, and how OpenAI's client sees its replies."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

from tests.end_to_end.commands import Command, environment_mark, marked, started

START_S = 600.0
"""How long a start may take on a busy machine that downloads, converts and checks a model for the first time."""


@dataclass(frozen=True, slots=True)
class Said:
    """One reply: its text, the fingerprint of its tokens and why it ended."""

    text: str
    sha: str
    finish: str


@dataclass(frozen=True, slots=True)
class Served:
    """A server that was started; it may still load."""

    command: Command
    output: Path
    mark: str

    def lines(self) -> list[str]:
        """What it said on stdout so far."""
        return self.output.read_text().splitlines()

    def wait_for(self, word: str) -> str:
        """The first line that holds `word`, waited for."""
        deadline = time.monotonic() + START_S
        while True:
            waiting = self.command.running() and time.monotonic() < deadline
            if (line := self._found(word)) is not None:
                return line
            assert waiting, f"no {word!r} in {self.lines()[-3:]}, {self.command.errors()[-2000:]}"
            time.sleep(0.01)

    def _found(self, word: str) -> str | None:
        return next((line for line in self.lines() if word in line), None)

    @property
    def port(self) -> int:
        """Where it serves, once it does."""
        return int(self.wait_for("] serving ").partition("/v1 (")[0].rpartition(":")[2])

    @property
    def curl(self) -> list[str]:
        """The ready request's words, as a shell takes them apart."""
        return shlex.split(self.wait_for("curl "))

    def ended(self) -> int:
        """Its exit code, waited for; no process may be left and nothing be said on stderr."""
        code, _ = self.command.finish()
        assert self.command.errors() == ""
        assert marked(self.mark) == ()
        return code


@contextmanager
def served(arguments: Sequence[str], home: Path) -> Iterator[Served]:
    """`tensorfold ARGUMENTS`, running; killed in the end, if it still runs."""
    output, mark = home / "out", environment_mark()
    with output.open("w") as out:
        command = started(arguments, home, out, mark)
    try:
        yield Served(command, output, mark)
    finally:
        command.kill()


@contextmanager
def client_of(port: int, key: str = "none") -> Iterator[openai.OpenAI]:
    """OpenAI's client, which tries nothing twice."""
    with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key, max_retries=0, timeout=300) as client:
        yield client


def whole(client: openai.OpenAI, content: str, **fields: Any) -> Said:
    """A chat's reply as one answer. `fields` go into the body as they are."""
    answer = client.chat.completions.create(**_call(content, fields))
    choice = answer.choices[0]
    return Said(
        choice.message.content or "", (answer.model_extra or {})["tensorfold"]["token_sha"], choice.finish_reason
    )


def streamed(client: openai.OpenAI, content: str, **fields: Any) -> Said:
    """A chat's reply as a stream, put together."""
    text, sha, finish = "", "", ""
    for event in client.chat.completions.create(stream=True, **_call(content, fields)):
        sha = (event.model_extra or {}).get("tensorfold", {}).get("token_sha", sha)
        for choice in event.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return Said(text, sha, finish)


def at_once(client: openai.OpenAI, contents: Sequence[str], **fields: Any) -> list[Said]:
    """Replies to several chats asked at the same time, every second one streamed."""
    with ThreadPoolExecutor(len(contents)) as clients:
        asked = [
            clients.submit(whole if index % 2 else streamed, client, content, **fields)
            for index, content in enumerate(contents)
        ]
        return [one.result() for one in asked]


def _call(content: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"model": "any", "messages": [{"role": "user", "content": content}], "extra_body": fields}
