"""Opens many streams at once over raw sockets, checks that nothing is lost or reordered, and tells when events came.

Runs as a process of its own, so that its work is not the server's: `python -m tests.benchmarks.http_load --port P`.
While streams run it only notes the time of each piece of bytes; everything else is read afterwards. With `--stamped`
each delta's text is `NUMBER:NANOSECONDS;`, numbered from 0 and stamped with the monotonic clock where it was made,
which gives delivery latencies. With `--expect FILE` (a JSON list of texts) each stream's text must be the listed one.
The last line is one JSON object; the exit status is 1 when a stream is not whole.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_STAMP = re.compile(r"([0-9]+):([0-9]+);")


class Stream:
    """One connection with one streamed request. Times are nanoseconds of the monotonic clock."""

    __slots__ = ("pieces", "request", "sent_ns", "socket")

    def __init__(self, host: str, port: int, request: bytes) -> None:
        self.request = request
        self.socket = socket.create_connection((host, port))
        self.sent_ns = 0
        self.pieces: list[tuple[int, bytes]] = []

    def begin(self) -> None:
        """Send the request."""
        self.sent_ns = time.monotonic_ns()
        self.socket.sendall(self.request)
        self.socket.setblocking(False)


@dataclass
class StreamReport:
    """What one stream brought: its text, when each delta came, and everything that was wrong with it."""

    text: str = ""
    arrivals_ns: list[int] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)
    tokens: int = 0
    finish: str | None = None
    token_sha: str = ""
    events: int = 0
    faults: list[str] = field(default_factory=list)


def http_events(pieces: Sequence[tuple[int, bytes]]) -> tuple[int, list[tuple[int, bytes]]]:
    """Status, and each chunk of a chunked answer with the time its last byte came. Raises ValueError when it is cut."""
    data = b"".join(piece for _, piece in pieces)
    head, mark, _ = data.partition(b"\r\n\r\n")
    if not mark:
        raise ValueError("the answer's head is not whole")
    status = int(head.split(b" ", 2)[1])
    if b"chunked" not in head.lower():
        return status, [(pieces[-1][0], data[len(head) + 4 :])]
    found: list[tuple[int, bytes]] = []
    at, piece, reached = len(head) + 4, 0, len(pieces[0][1])
    while True:
        line = data.find(b"\r\n", at)
        if line < 0:
            raise ValueError("the answer ends inside a chunk")
        size = int(data[at:line], 16)
        at = line + 2 + size + 2
        if at > len(data):
            raise ValueError("the answer ends inside a chunk")
        if size == 0:
            return status, found
        while reached < at:
            piece += 1
            reached += len(pieces[piece][1])
        found.append((pieces[piece][0], data[line + 2 : at - 2]))


def read_stream(pieces: Sequence[tuple[int, bytes]]) -> StreamReport:
    """Everything one stream brought, read after it ended."""
    report = StreamReport()
    try:
        status, events = http_events(pieces) if pieces else (0, [])
    except ValueError as cut:
        report.faults.append(str(cut))
        return report
    if status != 200:
        report.faults.append(f"status {status}")
        return report
    ended = False
    for when, event in events:
        if ended:
            report.faults.append("an event after [DONE]")
        for part in event.split(b"\n\n"):
            ended = _read_event(report, when, part) or ended
    if not ended:
        report.faults.append("no [DONE]")
    if report.finish is None:
        report.faults.append("no finish_reason")
    report.text = "".join(report.deltas)
    return report


def _read_event(report: StreamReport, when: int, event: bytes) -> bool:
    """Take one event in; True for [DONE]."""
    if not event or event.startswith(b":"):
        return False
    report.events += 1
    if event == b"data: [DONE]":
        return True
    value: dict[str, Any] = json.loads(event.removeprefix(b"data: "))
    if "error" in value:
        report.faults.append(f"error: {value['error']['message']}")
        return False
    for choice in value["choices"]:
        text = choice["delta"].get("content") if "delta" in choice else choice["text"]
        if text:
            report.deltas.append(text)
            report.arrivals_ns.append(when)
        if choice["finish_reason"] is not None:
            if report.finish is not None:
                report.faults.append("two finish reasons")
            report.finish = choice["finish_reason"]
    if value.get("usage"):
        report.tokens = value["usage"]["completion_tokens"]
    report.token_sha = value.get("tensorfold", {}).get("token_sha", report.token_sha)
    return False


def stamped_latencies(report: StreamReport) -> list[float]:
    """Milliseconds from the making of each delta to its arrival; faults are added for numbers out of place."""
    found: list[float] = []
    expected = 0
    for when, text in zip(report.arrivals_ns, report.deltas, strict=True):
        for number, made in _STAMP.findall(text):
            if int(number) != expected:
                report.faults.append(f"delta {number} came where {expected} was due")
            expected = int(number) + 1
            found.append((when - int(made)) / 1e6)
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 90th and 99th percentile and maximum."""
    if not values:
        return {}
    ordered = sorted(values)
    pick = {"p50": 0.50, "p90": 0.90, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 3) for name, part in pick.items()}


def request_bytes(path: str, body: Any, key: str | None = None) -> bytes:
    """A POST as bytes."""
    raw = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(raw)}"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    return "\r\n".join([*lines, "", ""]).encode() + raw


def run(host: str, port: int, requests: Sequence[bytes], timeout_s: float) -> list[Stream]:
    """Connect every stream, then begin all of them at once and note what comes until the server closes each."""
    streams = [Stream(host, port, request) for request in requests]
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            stream.begin()
            selector.register(stream.socket, selectors.EVENT_READ, (stream.socket.recv, stream.pieces.append))
        left, deadline, now = len(streams), time.monotonic() + timeout_s, time.monotonic_ns
        while left and time.monotonic() < deadline:
            for key, _ in selector.select(1.0):
                receive, note = key.data
                data = receive(65536)
                if data:
                    note((now(), data))
                else:
                    selector.unregister(key.fileobj)
                    left -= 1
    for stream in streams:
        stream.socket.close()
    return streams


def summary(streams: Sequence[Stream], reports: Sequence[StreamReport], stamped: bool) -> dict[str, Any]:
    """The figures of a run; times are milliseconds unless the name says otherwise."""
    # Reading stamps finds numbers out of place: it comes before the faults are counted.
    latencies = [value for report in reports for value in stamped_latencies(report)] if stamped else []
    began = min(stream.sent_ns for stream in streams)
    last = max((stream.pieces[-1][0] for stream in streams if stream.pieces), default=began)
    first = [(stream.pieces[0][0] - stream.sent_ns) / 1e6 for stream in streams if stream.pieces]
    gaps = [
        (later - earlier) / 1e6
        for report in reports
        for earlier, later in zip(report.arrivals_ns, report.arrivals_ns[1:], strict=False)
    ]
    return {
        "streams": len(streams),
        "whole": sum(not report.faults for report in reports),
        "events": sum(report.events for report in reports),
        "deltas": sum(len(report.deltas) for report in reports),
        "tokens": sum(report.tokens for report in reports),
        "wall_s": round((last - began) / 1e9, 3),
        "first_byte_ms": spread(first),
        "gap_ms": spread(gaps),
        "latency_ms": spread(latencies),
        "text_sha": [hashlib.sha256(report.text.encode()).hexdigest()[:12] for report in reports],
        "token_sha": [report.token_sha for report in reports],
        "faults": [f"stream {i}: {fault}" for i, report in enumerate(reports) for fault in report.faults][:20],
    }


def check_texts(reports: Sequence[StreamReport], expected: Sequence[str]) -> None:
    """Add a fault to each stream whose text is not the expected one; `expected` is used in turn."""
    for index, report in enumerate(reports):
        wanted = expected[index % len(expected)]
        if report.text != wanted:
            same = next((i for i, pair in enumerate(zip(report.text, wanted, strict=False)) if pair[0] != pair[1]), -1)
            place = same if same >= 0 else min(len(report.text), len(wanted))
            report.faults.append(f"the text differs from character {place}")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="http_load", description="Load a server with streams and check them.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/v1/chat/completions")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--bodies", type=Path, help="JSON list of request bodies, used in turn")
    parser.add_argument("--expect", type=Path, help="JSON list of texts, used in turn")
    parser.add_argument("--arrivals", type=Path, help="write each stream's arrival times (ns) as JSON")
    parser.add_argument("--stamped", action="store_true", help="deltas are NUMBER:NANOSECONDS;")
    parser.add_argument("--key", help="API key")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds")
    return parser.parse_args(arguments)


def bodies(flags: argparse.Namespace) -> list[Any]:
    """One streamed request body per stream."""
    if flags.bodies is not None:
        given = json.loads(flags.bodies.read_text())
        return [given[i % len(given)] | {"stream": True} for i in range(flags.streams)]
    return [
        {"messages": [{"role": "user", "content": f"stream {i}"}], "stream": True, "max_tokens": flags.max_tokens}
        for i in range(flags.streams)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the load, print its figures, and tell whether every stream was whole."""
    flags = parse(arguments)
    requests = [request_bytes(flags.path, body, flags.key) for body in bodies(flags)]
    cpu = time.process_time()
    streams = run(flags.host, flags.port, requests, flags.timeout)
    cpu = time.process_time() - cpu
    reports = [read_stream(stream.pieces) for stream in streams]
    if flags.expect is not None:
        check_texts(reports, json.loads(flags.expect.read_text()))
    if flags.arrivals is not None:
        flags.arrivals.write_text(json.dumps([report.arrivals_ns for report in reports]))
    figures = summary(streams, reports, flags.stamped)
    figures["client_us_per_event"] = round(cpu * 1e6 / max(1, figures["events"]), 2)
    print(json.dumps(figures))
    return 0 if figures["whole"] == len(streams) else 1


if __name__ == "__main__":
    sys.exit(main())
