"""A server whose output nobody reads any more: a closed pipe behind `| head`, a full disk below a log file."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.clients import get, post
from tests.end_to_end.commands import free_port, started
from tests.end_to_end.hash_server import until
from tests.synthetic.servable import write_servable

pytestmark = pytest.mark.slow

BODY = json.dumps({"prompt": "hello", "max_tokens": 4}).encode()


def answers(port: int) -> bool:
    try:
        return get(port, "/health")[0] == 200
    except OSError:
        return False


@pytest.mark.parametrize("stdout", ["closed", "full"])
def test_a_server_whose_output_cannot_be_written_serves_and_ends_cleanly(tmp_path: Path, stdout: str) -> None:
    if stdout == "full" and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    port = free_port()
    folder = tmp_path / "tiny"
    folder.mkdir()
    write_servable(folder)
    output = open("/dev/full", "w") if stdout == "full" else subprocess.PIPE  # noqa: SIM115
    server = started(["serve", str(folder), "--port", str(port)], tmp_path, stdout=output)
    try:
        if server.stdout is not None:
            server.stdout.readline()
            server.stdout.close()
        until(lambda: answers(port) or server.poll() is not None, "a server that answers")
        for _ in range(2):
            assert post(port, "/v1/completions", BODY).status == 200
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
    finally:
        server.kill()
        errors = server.communicate()[1]
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors
