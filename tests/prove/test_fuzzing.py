"""The fuzzing proof finds what is planted, makes it small, and its own readers are strict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tensorfold.entrypoints.http.bodies import parse_object
from tensorfold.entrypoints.http.errors import bad_request
from tests.prove.fuzzing import campaign
from tests.prove.fuzzing.answers import FormError, take
from tests.prove.fuzzing.campaign import Report, growth, run
from tests.prove.fuzzing.inputs import Input, from_text, in_chunks
from tests.prove.fuzzing.line import _any_method
from tests.prove.fuzzing.making import made
from tests.prove.fuzzing.minimise import Minimiser
from tests.prove.fuzzing.requests import read_requests
from tests.prove.fuzzing.verdicts import wrong_error

SEED = 5
Planting = Callable[[pytest.MonkeyPatch], None]


def reads(change: Callable[[dict[str, Any]], None]) -> Planting:
    """The server does something else to a body that it has read."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        def read(body: bytes) -> dict[str, Any]:
            value = parse_object(body)
            change(value)
            return value

        patch.setattr("tensorfold.entrypoints.http.bodies.parse_object", read)

    return plant


# None of these touches the good requests that are sent in between.


def fall_over(body: dict[str, Any]) -> None:
    if "logit_bias" in body:
        raise RuntimeError("logit_bias")


def tell_too_much(body: dict[str, Any]) -> None:
    try:
        int(str(body.get("max_tokens")))
    except ValueError as wrong:
        raise bad_request(f"{wrong}.") from None


def forget(body: dict[str, Any]) -> None:
    if isinstance(body.get("max_tokens"), str):
        del body["max_tokens"]


def doze(body: dict[str, Any]) -> None:
    if body.get("priority") == "background":
        time.sleep(1.2)


PLANTED: dict[str, tuple[str, Planting]] = {
    "a fault": ("status", reads(fall_over)),
    "a library's words": ("answer", reads(tell_too_much)),
    "a field that is not heard": ("reply", reads(forget)),
    "a hang": ("slow", reads(doze)),
}


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, plant = PLANTED[planted]
    plant(monkeypatch)
    report = run(SEED, range(2000))
    assert [each.problem.kind for each in report.found] == [kind]
    assert report.found[0].alone
    assert report.misses()


@pytest.mark.slow
def test_a_planted_fault_is_made_small_and_comes_back_from_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED["a fault"][1](monkeypatch)
    found = run(SEED, range(2000)).found[0]
    small = Minimiser(campaign.same_as(found)).shrunk(found.tried)
    assert len(small.data) < min(60, len(found.tried.data))
    again = from_text(small.as_text())
    assert again == small
    problem = campaign.fails(again, at_closed=False)
    assert problem is not None
    assert problem.kind == "status"
    monkeypatch.undo()
    assert campaign.fails(again, at_closed=False) is None


@pytest.mark.slow
def test_the_same_number_of_a_seed_is_the_same_input_and_another_is_not() -> None:
    assert [made(3, number) for number in range(300)] == [made(3, number) for number in range(300)]
    assert len({made(3, number)[1] for number in range(300)}) > 290
    assert made(3, 7) != made(4, 7)


def test_an_input_survives_its_line() -> None:
    for number in range(300):
        tried = made(9, number)[1]
        assert from_text(tried.as_text()) == tried


def test_pieces_make_the_whole() -> None:
    tried = Input(b'{"a":1}', "/v1/completions", (("X", "y"),), cuts=(3, 3, 40, 9999))
    assert b"".join(tried.pieces()).endswith(b'X: y\r\nContent-Length: 7\r\n\r\n{"a":1}')
    assert len(list(tried.pieces())) == 3


def test_a_minimiser_keeps_what_matters_alone() -> None:
    small = Minimiser(lambda tried: b"ab" in tried.data).shrunk(Input(b'{"x": [1, 2, "ab", 3], "y": {}}', "/"))
    assert small.data == b"ab"


@pytest.mark.parametrize(
    ("data", "whole", "rest"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 1, "none"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /a HTTP/1.1\r\n\r\n", 2, "none"),
        (b"GET / HTTP/1.0\r\n\r\nGET /a HTTP/1.1\r\n\r\n", 1, "none"),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\nxx", 1, "none"),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET", 1, "part"),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", 0, "part"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + in_chunks(b"abcdef", 4), 1, "none"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabc", 0, "part"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcdXX", 0, "doubtful"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc", 0, "doubtful"),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 0, "doubtful"),
        (b"GET / HTTP/1.1\nHost: x\n\n", 0, "doubtful"),
        (b"GET / HTTP/1.1\r\n : x\r\n\r\n", 0, "doubtful"),
        (b"get / HTTP/1.1\r\n\r\n", 0, "doubtful"),
        (b"GET / HT", 0, "part"),
    ],
)
def test_requests_are_read_up_to_the_first_doubt(data: bytes, whole: int, rest: str) -> None:
    reading = read_requests(data)
    assert (len(reading.requests), reading.rest) == (whole, rest)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        + in_chunks(b"data: {}\n\n", 99),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
    ],
)
def test_answers_out_of_form_are_refused(data: bytes) -> None:
    with pytest.raises(FormError):
        take(data, "GET", True)


def test_an_answer_is_taken_when_it_is_whole_and_not_before() -> None:
    data = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}'
    for cut in range(len(data)):
        assert take(data[:cut], "GET", False) == (None, data[:cut])
    answer, rest = take(data + b"HTTP", "GET", False)
    assert answer is not None
    assert (answer.value, rest) == ({"a": 1}, b"HTTP")
    headless, rest = take(data, "HEAD", False)
    assert headless is not None
    assert rest == b'{"a":1}'


def test_only_errors_in_our_form_and_words_pass() -> None:
    good = {
        "message": "max_tokens must be an integer.",
        "type": "invalid_request_error",
        "param": "x[1].y",
        "code": None,
    }
    assert wrong_error(good) is None
    for change in (
        {"message": "invalid literal for int() with base 10."},
        {"message": 'Traceback (most recent call last): File "x.py", line 3, in y.'},
        {"message": "Input should be a valid string."},
        {"message": "ValueError happened in here."},
        {"message": "no full stop behind this sentence"},
        {"message": "a\nline break in the middle."},
        {"message": "x" * 700 + "."},
        {"message": "temperature is not valid."},
        {"type": "oops"},
        {"code": "whatever"},
        {"param": "no field\n"},
        {"more": 1},
    ):
        assert wrong_error(good | change) is not None, json.dumps(change)


def test_growth_is_that_of_the_last_quarter_over_the_third() -> None:
    assert growth([900, 500, 100, 100, 100, 100, 107, 109]) == 7
    assert growth([1, 2, 3]) == 0
    report = Report(memory=[0, 0, 0, 0, 0, 0, 1 << 30, 1 << 30], objects=[0] * 6 + [9000] * 2)
    assert len(report.misses()) == 2


def test_a_stream_that_its_client_cut_short_is_one_answer() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    answer, rest = _any_method(head + b"E\r\n: keep-alive\n\n\r\n")
    assert answer is not None and answer.cut and answer.body == b": keep-alive\n\n" and rest == b""
    # Two answers to requests by HEAD, of which nobody knows here: each is a head alone.
    first, rest = _any_method(head + head)
    assert first is not None and not first.body and rest == head
