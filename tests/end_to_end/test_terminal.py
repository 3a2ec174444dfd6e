"""What a server shows on a terminal and what it writes elsewhere: the live line, and bodies of requests in a file."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.clients import post
from tests.end_to_end.commands import environment

COMMAND = [sys.executable, "-m", "tensorfold", "serve", "tiny", "--port", "0"]
WIPED = "\r\x1b[2K"
DRAWS = "in _redraw"
LIVE = "0 connections, 0 decoding, 0 reading, 0 waiting | decode 0.0, prefill 0.0 tok/s"


class Seen:
    """A server's output, read as it comes."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process, self._descriptor, self.text = process, descriptor, ""

    def until(self, *words: str) -> str:
        """Everything up to now, once it holds all of these."""
        while not all(word in self.text for word in words):
            self.text += os.read(self._descriptor, 65536).decode()
        return self.text

    @property
    def port(self) -> int:
        """Where it serves."""
        return int(self.until("] serving ", "curl ").partition("/v1 (")[0].rpartition(":")[2])

    def ended(self) -> str:
        """All of its output, once it was asked for its end and has ended well."""
        self.process.send_signal(signal.SIGTERM)
        self.until("[tensorfold] ended")
        assert self.process.wait(60) == 0
        return self.text


@contextmanager
def shown(home: Path, *, terminal: bool = True, **variables: str) -> Iterator[Seen]:
    """A server in front of a terminal, or of a pipe."""
    read, write = pty.openpty() if terminal else os.pipe()
    told = environment(home) | {"TERM": "xterm", "COLUMNS": "200", **variables}
    with subprocess.Popen(COMMAND, cwd=home, env=told, stdin=subprocess.DEVNULL, stdout=write, stderr=write) as process:
        os.close(write)
        try:
            yield Seen(process, read)
        finally:
            process.kill()
            os.close(read)


@pytest.mark.slow
def test_a_terminal_gets_a_live_line_above_which_everything_is_said(home: Path) -> None:
    with shown(home) as seen:
        port = seen.port
        seen.until(f"{WIPED}{LIVE}{WIPED}{LIVE}")
        assert post(port, "/v1/completions", b'{"prompt": "a", "max_tokens": 3}').status == 200
        seen.until("POST /v1/completions 200")
        seen.process.send_signal(signal.SIGUSR1)
        seen.until(DRAWS)
        ended = seen.ended()
    for line in ("POST /v1/completions 200", "ending: running replies"):
        assert any(f"{before}[tensorfold] {line}" in ended for before in (WIPED, "\n"))
    assert ended.endswith("[tensorfold] ended\r\n")
    assert "connection" not in ended.rpartition("[tensorfold] ending")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("terminal", "variables"),
    [(True, {"TENSORFOLD_NO_LIVE": "1"}), (True, {"TERM": "dumb"}), (False, {})],
    ids=["turned off", "dumb terminal", "pipe"],
)
def test_elsewhere_there_is_none(home: Path, terminal: bool, variables: dict[str, str]) -> None:
    with shown(home, terminal=terminal, **variables) as seen:
        assert seen.port
        # The stacks show whether there is a thread that would draw one: no time has to pass.
        seen.process.send_signal(signal.SIGUSR1)
        seen.until("stacks, as SIGUSR1 asked", "Current thread")
        ended = seen.ended()
    assert "\x1b" not in ended and "connection" not in ended
    assert "watchdog" in ended or "health.py" in ended
    assert DRAWS not in ended


@pytest.mark.slow
def test_bodies_of_requests_are_appended_to_a_file_of_the_owners_and_a_line_says_so(home: Path) -> None:
    bodies = [
        {"prompt": "xylophone", "max_tokens": 2},
        {"messages": [{"role": "user", "content": "quartz"}], "max_tokens": 2, "stream": True},
    ]
    path = home / "requests.jsonl"
    with shown(home, terminal=False, TENSORFOLD_REQUEST_LOG="~/requests.jsonl") as seen:
        port = seen.port
        told = f"TENSORFOLD_REQUEST_LOG is set: the bodies of requests, prompts included, are appended to {path}"
        assert told in seen.text
        for body, route in zip(bodies, ("completions", "chat/completions"), strict=True):
            assert post(port, f"/v1/{route}", json.dumps(body).encode()).status == 200
        hidden = {"prompt": "in the background", "max_tokens": 2, "priority": "background"}
        assert post(port, "/v1/completions", json.dumps(hidden).encode()).status == 200
        ended = seen.ended()
    assert [json.loads(line) for line in path.read_text().splitlines()] == bodies
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "xylophone" not in ended and "quartz" not in ended
