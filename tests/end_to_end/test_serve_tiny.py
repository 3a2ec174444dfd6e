"""The whole command over a tiny seeded checkpoint: served, asked by OpenAI's client, interrupted, and verified."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.end_to_end.clients import Client, get, post_bytes
from tests.end_to_end.commands import as_process, environment, listened
from tests.end_to_end.served import Served, at_once, client_of, served, streamed, whole
from tests.synthetic.servable import write_servable

QUESTION = "What is the capital of France?"
COPYING = (
    "Say this three times: the owl and the hen, the owl and the hen, the owl and the hen",
    "def one(self):\n    return self.a\n\ndef two(self):\n    return self.a\n",
    "1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4",
    '[{"id": 1, "on": true}, {"id": 2, "on": true}, {"id": 3, "on": true}]',
)
STUCK = """
import sys, time
from tensorfold.entrypoints.cli import main, opening, serve
def load(*given, on_progress, **named):
    on_progress("stuck")
    time.sleep(600)
opening.load_engine = load
serve._GIVE_UP_S = float(sys.argv[1])
sys.exit(main(["serve", "tiny", "--port", "0"]))
"""
"""A server whose load never comes back, and how long it is waited for once a signal came."""
SAMPLINGS = ({"temperature": 0}, {"temperature": 0.8, "seed": 7}, {"temperature": 1.2, "top_p": 0.9})


def rounds(count: int) -> bytes:
    """A request whose reply takes so many rounds."""
    fields = {"max_tokens": count, "ignore_eos": True, "draft": False, "stream": True, "return_token_ids": True}
    return post_bytes("/v1/completions", json.dumps({"prompt": "on and on", **fields}).encode())


@pytest.fixture(scope="module")
def tiny(home: Path) -> Iterator[Served]:
    with served(["serve", "tiny", "--port", "0"], home) as server:
        yield server


@pytest.fixture(scope="module")
def client(tiny: Served) -> Iterator[openai.OpenAI]:
    with client_of(tiny.port) as made:
        yield made


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.slow
def test_streamed_whole_serial_and_among_others_a_reply_is_the_same(
    client: openai.OpenAI, sampling: dict[str, float]
) -> None:
    serial = [whole(client, content, max_tokens=60, draft=False, **sampling) for content in COPYING]
    assert [streamed(client, content, max_tokens=60, **sampling) for content in COPYING] == serial
    assert at_once(client, COPYING, max_tokens=60, **sampling) == serial
    assert len({said.sha for said in serial}) > 1


def test_drafts_were_kept_and_refused_meanwhile(tiny: Served, client: openai.OpenAI) -> None:
    at_once(client, COPYING, max_tokens=60, temperature=0)
    _, health = get(tiny.port, "/health")
    assert 0 < health["accepted_total"] < health["drafted_total"]
    assert health["status"] == "ok" and health["requests_running"] == 0


def test_the_ready_request_is_one_that_a_shell_and_the_server_take(tiny: Served) -> None:
    words = tiny.curl
    assert words[:2] == ["curl", f"http://127.0.0.1:{tiny.port}/v1/chat/completions"]
    body = json.loads(words[words.index("-d") + 1])
    assert body == {"model": "tiny", "messages": [{"role": "user", "content": QUESTION}]}
    assert "Authorization" not in " ".join(words)


def test_nothing_of_a_prompt_or_a_reply_is_logged(tiny: Served, client: openai.OpenAI) -> None:
    said = whole(client, "xylophone quartz", max_tokens=40, temperature=0)
    tiny.wait_for(f"sha={said.sha}")
    assert "xylophone" not in tiny.output.read_text()
    assert said.text not in tiny.output.read_text()


@pytest.mark.slow
def test_with_a_key_and_a_name_full_of_quotes_the_ready_request_still_fits(home: Path) -> None:
    name = """it's "tiny", $HOME `é`"""
    with served(["serve", "tiny", "--port", "0", "--name", name, "--alias", "t", "--api-key", "k1"], home) as server:
        with client_of(server.port, "k1") as client:
            assert [model.id for model in client.models.list()] == [name, "t"]
            assert whole(client, QUESTION, max_tokens=4).finish == "length"
        with client_of(server.port, "k2") as stranger, pytest.raises(openai.AuthenticationError):
            whole(stranger, QUESTION, max_tokens=4)
        words = server.curl
        assert "Authorization: Bearer KEY" in words and "k1" not in server.output.read_text()
        assert json.loads(words[words.index("-d") + 1])["model"] == name
        server.command.interrupt()
        assert server.ended() == 0


@pytest.mark.slow
def test_an_interrupt_lets_running_replies_end_and_frees_the_port(home: Path) -> None:
    with served(["serve", "tiny", "--port", "0"], home) as server:
        port = server.port
        reply = Client(port)
        reply.send(rounds(150))
        reply.receive_events(2)
        server.command.interrupt()
        answer = reply.answer()
        assert server.ended() == 0
        assert answer.whole and len(answer.ids) == 150
        assert not listened(port)
        with socket.create_server(("127.0.0.1", port)):
            pass
        assert server.lines()[-1] == "[tensorfold] ended"


@pytest.mark.slow
def test_a_second_interrupt_ends_the_replies_at_once_and_well(home: Path) -> None:
    with served(["serve", "tiny", "--port", "0", "--parallel", "1"], home) as server:
        replies = [Client(server.port) for _ in range(8)]
        for events, reply in zip((2, *[1] * 7), replies, strict=True):
            reply.send(rounds(480))
            reply.receive_events(events)
        server.command.interrupt()
        server.wait_for("a second Ctrl-C")
        server.command.interrupt()
        answers = [reply.answer() for reply in replies]
        assert server.ended() == 130
        assert all(answer.whole or answer.failed_well for answer in answers)
        assert answers[-1].failed_well


@pytest.mark.slow
@pytest.mark.parametrize("line", ["loading", "checking rows"])
def test_an_interrupt_while_the_model_loads_ends_cleanly(tmp_path: Path, line: str) -> None:
    (tmp_path / "tiny").mkdir()
    write_servable(tmp_path / "tiny")
    with served(["serve", "tiny", "--port", "0"], tmp_path) as server:
        server.wait_for(line)
        server.command.interrupt()
        assert server.ended() == 0
        assert server.lines()[-1].startswith("[tensorfold] ended")


@pytest.mark.slow
@pytest.mark.parametrize(("patience", "signals", "code"), [("0.2", 1, 0), ("600", 2, 130)])
def test_a_load_that_never_comes_back_is_left_where_it_stands(
    home: Path, patience: str, signals: int, code: int
) -> None:
    command = [sys.executable, "-c", STUCK, patience]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=home, env=environment(home), stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            words = iter(["stuck", "ending: the load is given up"])
            for word in [next(words) for _ in range(signals)]:
                while word not in process.stdout.readline():
                    pass
                process.send_signal(signal.SIGINT)
            said, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, errors) == (code, "")
    assert said.endswith("[tensorfold] ended\n") == (code == 0)


@pytest.mark.slow
def test_a_taken_port_is_refused_in_one_line(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = as_process(["serve", "tiny", "--port", str(port)], home)
    assert ran.refusal_faults() == []
    assert f"127.0.0.1:{port} is in use" in ran.err


@pytest.mark.slow
def test_the_proof_of_the_tiny_model_passes_and_says_what_it_saw(home: Path) -> None:
    shown = as_process(["verify", "tiny"], home)
    assert (shown.code, shown.err, shown.left) == (0, "", ())
    assert shown.out.splitlines()[-1].startswith("tiny: equal, ")
    told = as_process(["verify", "tiny", "--json", "--seed", "5"], home)
    proof = json.loads(told.out)
    assert (told.code, told.err) == (0, "")
    assert proof["passed"] and proof["differences"] == 0 and proof["compared"] >= 600
    drafted = [mode for mode in proof["modes"] if mode["copied"] is None and mode["resumed"] is None]
    resumed = {mode["mode"]: mode["resumed"] for mode in proof["modes"] if mode["resumed"] is not None}
    assert resumed.keys() == {"prompts resumed", "prompts from disk"} and min(resumed.values()) >= 100
    assert all(mode["kept"] >= 100 and mode["refused"] >= 100 for mode in drafted)
    copied = {mode["mode"]: mode["copied"] for mode in proof["modes"] if mode["copied"] is not None}
    assert len(copied) == 4 and all(copies["missed"] >= 100 for copies in copied.values())
    assert all(copies["landed"] >= 100 for mode, copies in copied.items() if mode != "record poisoned")
