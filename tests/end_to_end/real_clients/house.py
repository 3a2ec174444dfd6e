"""The served model that the libraries ask, what its log and its metrics tell, and ways to fill it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.end_to_end.clients import Client, post_bytes
from tests.end_to_end.served import Served, served
from tests.synthetic.servable import SERVABLE, write_servable

KEY = "sesame"
QUEUE = 8
PATIENCE_S = 120.0
ROOM = 200
"""Tokens of the window that are left to prompts."""
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
LEFT = "tensorfold_client_disconnections_total"


@dataclass(frozen=True, slots=True)
class House:
    """A server with one lane and a key."""

    server: Served
    model: str
    port: int

    @property
    def base(self) -> str:
        """What clients take as their base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def ask(self, **body: Any) -> tuple[int, dict[str, Any]]:
        """Status and JSON of a chat, asked without any library."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            headers = {"Authorization": f"Bearer {KEY}"}
            connection.request("POST", "/v1/chat/completions", json.dumps({"model": self.model} | body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def longest(self) -> int:
        """A reply limit that nearly fills the window."""
        window: int = json.loads(self._get("/v1/models"))["data"][0]["max_model_len"]
        return window - ROOM

    def count(self, family: str) -> int:
        """A family of the metrics, all of its members together."""
        text = self._get("/metrics")
        found = re.findall(rf"^{re.escape(family)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return int(sum(float(value) for value in found))

    def _get(self, path: str) -> str:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {KEY}"})
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def told(self) -> list[int]:
        """Statuses of the requests for chats that the log has lines of."""
        found = (re.search(r"\] POST \S*/chat/completions (\d+) ", line) for line in self.server.lines())
        return [int(line[1]) for line in found if line]

    @contextmanager
    def full(self) -> Iterator[None]:
        """Every lane and every place of the queue is taken, until the block ends."""
        crowd: list[Client] = []
        fields = {"max_tokens": self.longest(), "ignore_eos": True, "draft": False, "stream": True}
        body = json.dumps({"prompt": "On and on"} | fields).encode()
        try:
            for place in range(1 + QUEUE):
                client = Client(self.port)
                crowd.append(client)
                client.send(post_bytes("/v1/completions", body, {"Authorization": f"Bearer {KEY}"}))
                until(lambda place=place: self.count(RUNNING) + self.count(WAITING) == place + 1, "a full queue")
            yield
        finally:
            for client in crowd:
                client.leave("reset")
            until(lambda: not self.count(RUNNING) and not self.count(WAITING), "an empty queue")


def until(fact: Any, what: str) -> None:
    """Wait for a fact. Raises TimeoutError."""
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} never came")
        time.sleep(0.02)


@contextmanager
def house(model: str, folder: Path) -> Iterator[House]:
    """Serve `demo`, `tiny` (a checkpoint made here, with a large window) or any other model; ended afterwards."""
    home = folder / "server"
    home.mkdir()
    if model == "tiny":
        write_servable(_made(home / "tiny"), replace(SERVABLE, context=32768))
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        cache = Path(base) if base else Path("~/.cache").expanduser()
        cache.mkdir(parents=True, exist_ok=True)
        (home / "cache").symlink_to(cache)
    flags = ["--port", "0", "--parallel", "1", "--api-key", KEY, "--metrics-open"]
    with served(["serve", model, *flags], home) as server:
        yield House(server, "any", server.port)
        server.command.interrupt()
        if server.ended() != 0:
            raise AssertionError("the server did not end cleanly")


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
