"""The load generator finds what is whole, and what is not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import http_load
from tests.entrypoints.http.fakes import FakeChat, FakeReply, Order, hello
from tests.entrypoints.http.wire import on_socket


def load(capsys: pytest.CaptureFixture[str], chat: FakeChat, *arguments: str) -> tuple[int, dict[str, Any]]:
    with on_socket(chat) as server:
        status = http_load.main(["--port", str(server.server.port), "--streams", "6", *arguments])
    figures: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return status, figures


def stamped(*numbers: int) -> FakeChat:
    def script(reply: FakeReply, order: Order) -> None:
        for number in numbers:
            reply.say(f"{number}:{time.monotonic_ns()};")
        reply.end(ids=numbers)

    return FakeChat(script)


def test_whole_streams_are_told_with_their_latencies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arrivals = tmp_path / "arrivals.json"
    status, figures = load(capsys, stamped(*range(20)), "--stamped", "--arrivals", str(arrivals))
    assert (status, figures["faults"]) == (0, [])
    assert (figures["streams"], figures["whole"], figures["deltas"], figures["tokens"]) == (6, 6, 120, 120)
    assert figures["latency_ms"]["p50"] > 0
    times = json.loads(arrivals.read_text())
    assert [len(stream) for stream in times] == [20] * 6
    assert all(stream == sorted(stream) for stream in times)


@pytest.mark.parametrize("numbers", [(0, 1, 3), (0, 2, 1), (1, 2)])
def test_lost_and_reordered_deltas_are_faults(capsys: pytest.CaptureFixture[str], numbers: tuple[int, ...]) -> None:
    status, figures = load(capsys, stamped(*numbers), "--stamped")
    assert status == 1
    assert figures["whole"] == 0
    assert "was due" in figures["faults"][0]


def test_a_text_that_is_not_the_expected_one_is_a_fault(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    expected, bodies = tmp_path / "expected.json", tmp_path / "bodies.json"
    bodies.write_text(json.dumps([{"messages": [{"role": "user", "content": "x"}]}]))
    expected.write_text(json.dumps(["Hello world"]))
    good = load(capsys, FakeChat(hello), "--expect", str(expected), "--bodies", str(bodies))
    assert (good[0], good[1]["whole"]) == (0, 6)
    expected.write_text(json.dumps(["Hello world", "Hello wurld"]))
    status, figures = load(capsys, FakeChat(hello), "--expect", str(expected))
    assert (status, figures["whole"]) == (1, 3)
    assert figures["faults"][0] == "stream 1: the text differs from character 7"


def test_errors_and_refusals_are_faults(capsys: pytest.CaptureFixture[str]) -> None:
    def script(reply: FakeReply, order: Order) -> None:
        reply.say("a")
        reply.fail("broken")

    status, figures = load(capsys, FakeChat(script))
    assert status == 1
    assert "stream 0: error: broken" in figures["faults"]
    status, figures = load(capsys, FakeChat(refusal=ValueError("x")))
    assert (status, figures["faults"][0]) == (1, "stream 0: status 500")


def test_a_stream_that_is_cut_is_a_fault() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    cut = [(1, head + b'16\r\ndata: {"choices":[]}\n\n\r\n'), (2, b"5\r\ndat")]
    assert http_load.read_stream(cut).faults == ["the answer ends inside a chunk"]
    assert http_load.read_stream([(1, b"HTTP/1.1 200 OK\r\n")]).faults == ["the answer's head is not whole"]
    assert http_load.read_stream([]).faults == ["status 0"]
    unended = [(1, head + b"0\r\n\r\n")]
    assert http_load.read_stream(unended).faults == ["no [DONE]", "no finish_reason"]


def test_an_event_arrives_when_its_last_byte_does() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [(1, head + b"3\r\nab"), (2, b"c\r\n2\r\nde\r\n"), (3, b"0\r\n\r\n")]
    assert http_load.http_events(pieces) == (200, [(2, b"abc"), (2, b"de")])
