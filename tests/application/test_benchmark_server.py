"""Measuring a server: what a client sees of it, what it states, and what is only counted, over a server in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorfold.application.benchmark_prompts import Prompt
from tensorfold.application.benchmark_server import NOT_STATED, SERVER, ServerBenchmark, ServerMatrix
from tensorfold.application.benchmarking import Listener, Outcome
from tensorfold.application.ports.benchmarks import ServerFaultError, ServerReply, ServerRequest
from tensorfold.application.ports.checkpoints import RefusedError
from tests.application.benchmark_house import Heard
from tests.fakes.benchmarks import Answer, FakeChatServer
from tests.fakes.clock import FakeClock

GREEDY = tuple(Prompt(f"p{n}", (("user", f"Say {n}."),)) for n in range(3))
SAMPLED = Prompt("sampled", (("user", "Say more."),), 0.8, 0.9, 5, 7)
MATRIX = ServerMatrix("m", (*GREEDY, SAMPLED), 16, 1, (1, 2))
REPLY = ServerReply("text", 0.25, 1.75, 2.0, 8, 16)


def text(request: ServerRequest) -> str:
    return request.messages[0]["content"]


def measured(
    answer: Answer = lambda request, number: replace(REPLY, text=text(request)),
    matrix: ServerMatrix = MATRIX,
    state: str | None = None,
    listener: Listener | None = None,
) -> tuple[Outcome, ServerBenchmark, FakeChatServer]:
    clock = FakeClock()
    server = FakeChatServer(clock, answer, state=state)
    benchmark = ServerBenchmark(server, clock, matrix, listener or Listener())
    return benchmark.run(), benchmark, server


def test_figures_of_a_server_are_what_its_client_saw() -> None:
    outcome, benchmark, _ = measured()
    alone = outcome.rows[0]
    assert [row.key for row in outcome.rows] == [(SERVER, NOT_STATED, 1), (SERVER, NOT_STATED, 2)]
    assert (alone.replies, alone.tokens, alone.seconds, alone.rate) == (4, 64, 8.0, 8.0)
    assert (alone.first_p50_s, alone.first_p99_s, alone.stream_rate) == (0.25, 0.25, 10.0)
    assert alone.rounds is alone.launches is alone.round_tokens is None and alone.sources == {}
    assert benchmark.notes == []


def test_every_field_of_a_prompt_is_asked_and_the_length_and_no_end_token() -> None:
    _, _, server = measured()
    sampled = next(one for one in server.asked if one.seed is not None)
    assert sampled == ServerRequest(
        "m", [{"role": "user", "content": "Say more."}], 16, 0.8, 0.9, top_k=5, seed=7, ignore_eos=True
    )
    assert len(server.asked) == 1 + 2 * 4


def test_a_server_that_refuses_ignore_eos_is_asked_without_and_the_result_says_so() -> None:
    def answer(request: ServerRequest, number: int) -> ServerReply:
        if request.ignore_eos:
            raise ServerFaultError("no", 400)
        return REPLY

    _, benchmark, server = measured(answer)
    assert not any(one.ignore_eos for one in server.asked[1:])
    assert benchmark.notes == ["the server refuses ignore_eos: replies may end before --tokens"]


@pytest.mark.parametrize(("status", "strikes"), [(401, 0), (None, 0), (500, 3)])
def test_a_fault_of_the_server_ends_the_benchmark_with_its_sentence(status: int | None, strikes: int) -> None:
    def answer(request: ServerRequest, number: int) -> ServerReply:
        if number >= strikes:
            raise ServerFaultError("the server broke off.", status)
        return REPLY

    with pytest.raises(RefusedError, match=r"^the server broke off.$"):
        measured(answer)


def test_a_fault_of_our_own_ends_it_too_and_says_nothing_of_its_text() -> None:
    def answer(request: ServerRequest, number: int) -> ServerReply:
        if number == 2:
            raise KeyError("secret")
        return REPLY

    with pytest.raises(RefusedError, match=r"^a request of the benchmark failed: KeyError in ") as refused:
        measured(answer)
    assert "secret" not in refused.value.message


def test_repeated_greedy_replies_are_compared_counted_and_not_judged() -> None:
    outcome, _, _ = measured()
    assert (outcome.compared, outcome.differences) == (3, 0)

    def drifting(request: ServerRequest, number: int) -> ServerReply:
        return replace(REPLY, text=f"{text(request)} {number // 7}")

    outcome, benchmark, _ = measured(drifting, replace(MATRIX, streams=(1,), runs=3))
    assert outcome.compared == 6 and 0 < outcome.differences <= 6
    assert [note for note in benchmark.notes if "first different" in note] == [
        "first different reply to a repeated greedy prompt: 'p2', server, 1 stream"
    ]


def test_sampled_replies_are_never_compared() -> None:
    outcome, _, _ = measured(
        lambda request, number: replace(REPLY, text=str(number)), replace(MATRIX, prompts=(SAMPLED,))
    )
    assert (outcome.compared, outcome.differences) == (0, 0)


def test_without_usage_events_are_counted_and_the_result_says_so() -> None:
    outcome, benchmark, _ = measured(lambda request, number: replace(REPLY, tokens=None))
    assert outcome.rows[0].tokens == 4 * REPLY.pieces
    assert benchmark.notes == ["the server states no usage: events with text were counted as tokens"]


def test_a_reply_in_one_piece_has_no_rate_of_its_own() -> None:
    outcome, _, _ = measured(lambda request, number: replace(REPLY, last_s=0.25))
    assert outcome.rows[0].stream_rate == 0.0 and outcome.rows[0].rate == 8.0


def test_a_server_without_any_text_cannot_be_measured() -> None:
    with pytest.raises(RefusedError, match=r"^No reply had any text"):
        measured(lambda request, number: replace(REPLY, text="", first_s=None, pieces=0))


def test_the_records_state_is_what_the_server_says() -> None:
    outcome, _, _ = measured(state="on")
    assert {row.record for row in outcome.rows} == {"the server's, on"}


def test_a_listener_hears_every_reply_and_every_stream_gets_a_request() -> None:
    heard = Heard()
    measured(matrix=replace(MATRIX, streams=(6,)), listener=heard)
    assert heard.lines == [
        ("began", SERVER, 6, 8),
        *(("replied", done) for done in range(1, 9)),
        ("measured", SERVER, 6),
    ]
