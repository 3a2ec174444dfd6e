"""A server whose output nobody reads any more: a closed pipe behind `| head`, a full disk below a log file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tensorfold.application.settings import EngineSettings
from tensorfold.entrypoints.http.access_log import AccessRecord
from tests.end_to_end.clients import ask, get, post
from tests.end_to_end.commands import free_port, started
from tests.end_to_end.hash_server import asked, hash_model, hash_server, until
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
        if server.process.stdout is not None:
            server.process.stdout.readline()
            server.process.stdout.close()
        until(lambda: answers(port) or not server.running(), "a server that answers")
        for _ in range(2):
            assert post(port, "/v1/completions", BODY).status == 200
        server.interrupt()
        assert server.finish()[0] == 0
    finally:
        server.kill()
    assert server.errors() == ""


def test_a_log_that_cannot_be_written_costs_no_reply_and_no_refusal() -> None:
    def broken(record: AccessRecord) -> None:
        raise BrokenPipeError

    wanted = asked([{"prompt": [1, 2], "max_tokens": 8, "stream": streamed} for streamed in (False, True)])
    with hash_server(hash_model(), EngineSettings(parallel=1, queue=1), log=broken) as place:
        assert all(ask(place.port, one).equals(one) for one in wanted)
        assert post(place.port, "/v1/completions", b"{").status == 400
        place.until_empty()
