"""The demo behind the real command while it reads a long prompt: its health must stay green all the way."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.end_to_end.clients import Client, get, post_bytes

ROOT = Path(__file__).parents[2]
READY_S, REPLY_S, END_S = 600.0, 900.0, 30.0
REPLY_TOKENS = 32
_SERVING = re.compile(r"serving \S+ on http://[^ :]+:(\d+)/v1")


@dataclass
class Watched:
    """What was seen."""

    prompt: int
    tokens: int = 0
    looks: int = 0
    red: list[str] = field(default_factory=list)
    slowest_look_s: float = 0.0
    prefill_s: float = 0.0
    ready_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def misses(self) -> list[str]:
        """What is wrong; empty when it holds."""
        found = [*self.wrong, *self.red[:3]]
        if self.looks < 10:
            found.append(f"{self.looks} looks at health are too few")
        return found

    def figures(self) -> str:
        """One line."""
        return (
            f"a prompt of {self.prompt} ids read in {self.prefill_s:.1f} s and answered with {self.tokens} tokens, "
            f"health red in {len(self.red)} of {self.looks} looks (slowest {self.slowest_look_s:.2f} s), "
            f"ready after {self.ready_s:.0f} s"
        )


def watch_demo(prompt: int) -> Watched:
    """Serve the demo, send `prompt` ids, look at health until the reply is there, and end the server."""
    seen = Watched(prompt)
    command = [sys.executable, "-m", "tensorfold", "serve", "demo", "--port", "0", "--no-update-check"]
    began = time.monotonic()
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: list[str] = []
    try:
        port = _port(server, lines)
        seen.ready_s = time.monotonic() - began
        threading.Thread(target=lambda: lines.extend(server.stdout or ()), daemon=True).start()
        _watch(port, seen)
    finally:
        server.send_signal(signal.SIGINT)
        try:
            code = server.wait(END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            code = server.wait()
    if code != 0:
        seen.wrong.append(f"the server ended with {code}")
    seen.wrong += [line.strip() for line in lines if "Traceback" in line or "overdue" in line]
    return seen


def _port(server: subprocess.Popen[str], lines: list[str]) -> int:
    deadline = threading.Timer(READY_S, server.kill)
    deadline.start()
    try:
        for line in server.stdout or ():
            lines.append(line)
            if found := _SERVING.search(line):
                return int(found[1])
    finally:
        deadline.cancel()
    raise RuntimeError(f"the demo did not come up: {''.join(lines[-5:])}")


def _watch(port: int, seen: Watched) -> None:
    ids = [1000 + 37 * i % 40000 for i in range(seen.prompt)]
    body = {"prompt": ids, "max_tokens": REPLY_TOKENS, "temperature": 0, "ignore_eos": True}
    answers: list[dict[str, Any]] = []
    client = Client(port)
    client.socket.settimeout(REPLY_S)
    client.send(post_bytes("/v1/completions", json.dumps(body).encode()))
    reader = threading.Thread(target=lambda: answers.append(_body(client)))
    reader.start()
    while reader.is_alive():
        began = time.monotonic()
        status, health = get(port, "/health")
        seen.slowest_look_s = max(seen.slowest_look_s, time.monotonic() - began)
        seen.looks += 1
        if status != 200:
            seen.red.append(f"health said {status} {health['status']} after {seen.looks} looks")
        reader.join(0.05)
    answer = answers[0] if answers else {}
    seen.tokens = answer.get("usage", {}).get("completion_tokens", 0)
    seen.prefill_s = answer.get("tensorfold", {}).get("prefill_s", 0.0)
    if seen.tokens != REPLY_TOKENS:
        seen.wrong.append(f"the reply has {seen.tokens} tokens of {REPLY_TOKENS}: {json.dumps(answer)[:300]}")


def _body(client: Client) -> dict[str, Any]:
    data = b""
    with client.socket:
        while part := client.socket.recv(65536):
            data += part
    body: dict[str, Any] = json.loads(data.partition(b"\r\n\r\n")[2])
    return body
