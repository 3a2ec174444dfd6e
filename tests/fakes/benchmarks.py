"""A benchmark's files in memory, and a chat server that needs no network."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorfold.application.ports.benchmarks import Lines, ServerFaultError, ServerReply, ServerRequest
from tensorfold.application.ports.checkpoints import RefusedError
from tests.fakes.clock import FakeClock

Answer = Callable[[ServerRequest, int], ServerReply]


class FakeBenchmarkFiles:
    """Files by path; only `folder` can be written in."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[Path, str] = {}
        self._folder = folder

    def public_prompts(self) -> Lines:
        """One prompt."""
        return (("public, line 1", {"name": "hi", "messages": [{"role": "user", "content": "Hi."}]}),)

    def prompts(self, path: Path) -> Lines:
        """One JSON object a line."""
        lines = enumerate(self._text(path).splitlines(), start=1)
        return tuple((f"{path}, line {number}", json.loads(line)) for number, line in lines if line.strip())

    def result(self, path: Path) -> Mapping[str, Any]:
        """One JSON object."""
        made: dict[str, Any] = json.loads(self._text(path))
        return made

    def text(self, path: Path) -> str | None:
        """A text, or None."""
        return self.files.get(path)

    def check_place(self, path: Path) -> None:
        """Only in the folder."""
        if path.parent != self._folder:
            raise RefusedError(f"{path.parent} is no folder.")

    def write(self, path: Path, text: str) -> None:
        """One file."""
        self.check_place(path)
        self.files[path] = text

    def _text(self, path: Path) -> str:
        if path not in self.files:
            raise RefusedError(f"{path} is not there.")
        return self.files[path]


class FakeChatServer:
    """Answers each request by `answer`, which is told how many were asked before; `clock` moves by its seconds.

    Without `answer` every reply is `text` in `tokens` tokens. While `refusal` says something nothing is answered.
    """

    def __init__(
        self,
        clock: FakeClock,
        answer: Answer | None = None,
        *,
        text: str = "text",
        tokens: int | None = None,
        state: str | None = None,
    ) -> None:
        self.asked: list[ServerRequest] = []
        self.refusal = ""
        self._clock = clock
        self._answer = answer or (lambda request, number: ServerReply(text, 0.25, 1.75, 2.0, 8, tokens))
        self._state = state
        self._lock = threading.Lock()

    def models(self) -> Sequence[str]:
        """One."""
        self._check()
        return ("m",)

    def record_state(self) -> str | None:
        """As constructed."""
        return None if self.refusal else self._state

    def reply(self, request: ServerRequest) -> ServerReply:
        """What `answer` says."""
        self._check()
        with self._lock:
            self.asked.append(request)
            answer = self._answer(request, len(self.asked) - 1)
            self._clock.advance(answer.seconds)
            return answer

    def _check(self) -> None:
        if self.refusal:
            raise ServerFaultError(self.refusal)
