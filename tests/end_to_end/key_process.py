"""`tensorfold serve --api-key-file` in a process of its own: refused at the start, told by SIGHUP, by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

from tests.end_to_end.clients import post
from tests.end_to_end.commands import as_process
from tests.end_to_end.served import Served, served
from tests.synthetic.servable import write_servable

BODY = json.dumps({"prompt": "one", "max_tokens": 3, "temperature": 0}).encode()
REFUSED: dict[bytes | None, str] = {
    None: "is not there",
    b"": "holds no key",
    b"two words": "Line 1",
    b"\xff": "not UTF-8",
    b"k" * (1 << 21): "holds 2097152 bytes",
}


def renewed_in_a_process(folder: Path) -> None:
    """Raises AssertionError when a bad file serves, or a request is lost or wrongly admitted."""
    (folder / "tiny").mkdir()
    write_servable(folder / "tiny")
    path = folder / "process-keys"
    words = ["serve", "tiny", "--port", "0", "--api-key-file", str(path)]
    for data, told in REFUSED.items():
        if data is not None:
            path.touch(0o600)
            path.write_bytes(data)
        ran = as_process(words, folder)
        assert ran.refusal_faults() == [] and told in ran.err, ran
    put(path, "kept-1", "first-1")
    path.chmod(0o640)
    ran = as_process(words, folder)
    assert ran.refusal_faults() == [] and "has mode 0640, so others may use it" in ran.err, ran
    path.chmod(0o600)
    with served(words, folder) as server:
        _renew(server, path)
        server.command.interrupt()
        assert server.ended() == 0
        lines = server.lines()
        assert not [line for line in lines if any(key in line for key in ("kept-1", "first-1", "second-1", "third-1"))]
        assert any("keys: 2 API keys" in line for line in lines)


def _renew(server: Served, path: Path) -> None:
    port, ending, lost = server.port, threading.Event(), []

    def ask_on() -> None:
        while not ending.is_set():
            if (status := _status(port, "kept-1")) != 200:
                lost.append(status)

    assert [_status(port, key) for key in ("kept-1", "first-1", "second-1", "")] == [200, 200, 401, 401]
    client = threading.Thread(target=ask_on)
    client.start()
    try:
        put(path, "kept-1", "second-1", "more-1")
        os.kill(_server(server), signal.SIGHUP)
        server.wait_for("keys: 3 from")
        assert [_status(port, key) for key in ("first-1", "second-1")] == [401, 200]
        put(path, "kept-1", "third-1", "more-1", "most-1")
        server.wait_for("keys: 4 from")
        assert [_status(port, key) for key in ("second-1", "third-1")] == [401, 200]
    finally:
        ending.set()
        client.join()
    assert lost == [], f"lost requests: {lost[:5]}"
    path.chmod(0o644)
    server.wait_for("None of its keys is valid")
    assert _status(port, "kept-1") == 401


def put(path: Path, *keys: str) -> None:
    """Put a file of keys in place, whole."""
    fresh = path.with_suffix(".fresh")
    fresh.write_text("".join(f"{key}\n" for key in keys))
    fresh.chmod(0o600)
    os.replace(fresh, path)


def _status(port: int, key: str) -> int:
    return post(port, "/v1/completions", BODY, {"x-api-key": key}).status


def _server(server: Served) -> int:
    """The process that serves: the one child of the process that measures it."""
    parent = server.command.process.pid
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return next(int(pid) for pid, above in map(str.split, listed.splitlines()) if int(above) == parent)
