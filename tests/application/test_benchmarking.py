"""A benchmark through the real scheduler over a hash model: cells, figures, and the reply it does not accept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorfold.application.benchmark_cells import Answer, CellRunner, Measured, percentile, row_of
from tensorfold.application.benchmark_comparing import compare
from tensorfold.application.benchmarking import (
    DRAFTS,
    NO_RECORD,
    RECORD,
    SEEN,
    SERIAL,
    Matrix,
    NotEqualError,
    Question,
    difference,
)
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.replies import GenerationRequest, ReplyStats
from tensorfold.domain.recall.layout import SEPARATOR
from tensorfold.domain.sampling import Sampling
from tests.application.benchmark_house import (
    LAW,
    MATRIX,
    QUESTIONS,
    STREAMS,
    Heard,
    measured,
    model,
    records,
    result_of,
    scheduled,
)
from tests.fakes.clock import FakeClock
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.hash_faults import DriftingModel, StreamsDriftingModel
from tests.fakes.serial import SerialCase, serial_references
from tests.fakes.stores import FakeRecordFolder


def test_every_mode_is_measured_over_every_number_of_streams_with_its_records_state() -> None:
    outcome = measured()
    assert [row.key for row in outcome.rows] == [
        *((SERIAL, NO_RECORD, streams) for streams in STREAMS),
        *((DRAFTS, NO_RECORD, streams) for streams in STREAMS),
        *((RECORD, SEEN, streams) for streams in STREAMS),
    ]
    # Four streams get a request each, so every cell asks three questions twice; the first replies are the reference.
    assert all(row.replies == 6 and row.tokens == 6 * MATRIX.reply for row in outcome.rows)
    assert (outcome.compared, outcome.differences) == (9 * 6 - 3, 0)


def test_figures_are_those_of_the_engines_own_time() -> None:
    outcome = measured(model(shares_rounds=True), launch_s=0.01)
    alone = outcome.rows[0]
    # A reply is 24 launches of 10 ms, the first of which brings its first token; nothing else takes any time.
    assert alone.seconds == pytest.approx(6 * 24 * 0.01)
    assert alone.rate == pytest.approx(100.0)
    assert alone.first_p50_s == alone.first_p99_s == pytest.approx(0.01)
    assert alone.stream_rate == pytest.approx(100.0)
    assert (alone.rounds, alone.launches, alone.round_tokens, alone.sources) == (144, 144, 1.0, {})
    both = outcome.rows[1]
    # Two streams share nearly every round; which do when one of them begins is up to the threads.
    assert both.rounds is not None and 72 <= both.rounds < 144 and both.rate == pytest.approx(14400 / both.rounds)


def test_replies_that_land_in_one_round_have_no_rate_of_a_stream() -> None:
    stats = [ReplyStats(3, 9, decode_s=decode, rounds=1, first_tokens=9) for decode in (1e-6, 2e-6)]
    slow = ReplyStats(3, 9, decode_s=0.5, rounds=2, first_tokens=4)

    def rate(*stats: ReplyStats) -> float:
        answers = tuple(Answer(at, (1,) * 9, one) for at, one in enumerate(stats))
        return row_of(DRAFTS, NO_RECORD, 1, Measured(answers, 1.0, 3, 3)).stream_rate

    assert rate(*stats) == 0.0 and rate(*stats, slow) == 10.0
    assert stats[0].tokens_per_second == 0.0 and slow.tokens_per_second == 10.0


def test_a_record_that_has_seen_the_prompts_saves_rounds_and_every_cell_says_whose_tokens_were_kept() -> None:
    rows = {(row.mode, row.streams): row for row in measured().rows}
    serial, drafts, record = (rows[mode, 1] for mode in (SERIAL, DRAFTS, RECORD))
    assert serial.rounds is not None and drafts.rounds is not None and record.rounds is not None
    assert set(drafts.sources) == {"copy"} and drafts.rounds <= serial.rounds
    assert record.sources["recall"][1] > MATRIX.reply and 3 * record.rounds < drafts.rounds
    assert all(kept <= drafted for row in rows.values() for drafted, kept in row.sources.values())


def test_replies_of_a_benchmark_are_the_serial_replies_of_the_law() -> None:
    cases = [SerialCase(q.prompt, MATRIX.reply, q.sampling) for q in QUESTIONS]
    expected = [reply.tokens for reply in serial_references(LAW, cases, ())]
    clock, record = FakeClock(), records()
    with scheduled(model(), record, clock) as scheduler:
        requests = [
            GenerationRequest(q.prompt, q.sampling, MATRIX.reply, ignore_eos=True, draft=False) for q in QUESTIONS
        ]
        answers = CellRunner(scheduler, clock).run(requests, 2).answers
    assert {answer.at: answer.ids for answer in answers} == dict(enumerate(map(tuple, expected)))


def test_a_record_holds_the_benchmarks_own_texts_and_nothing_else_and_every_cell_has_one_of_its_own() -> None:
    stores: list[FakeRecordFolder] = []
    measured(stores=stores)
    assert len(stores) == len(STREAMS)
    texts = sum(len(q.prompt) + MATRIX.reply for q in QUESTIONS)
    for store in stores:
        held = [token for chunk in store.chunks.values() for token in chunk if token != SEPARATOR]
        assert 0 < len(held) <= texts


def test_without_a_cell_of_one_stream_the_serial_replies_are_made_unmeasured() -> None:
    matrix = replace(MATRIX, streams=(2,))
    heard = Heard()
    outcome = measured(matrix=matrix, listener=heard)
    assert [row.streams for row in outcome.rows] == [2, 2, 2]
    assert outcome.compared == 9
    assert [line for line in heard.lines if line[0] == "began"] == [
        ("began", SERIAL, 2, 3),
        ("began", DRAFTS, 2, 3),
        ("began", RECORD, 2, 3),
    ]


def test_a_listener_hears_each_cell_begin_every_reply_and_the_row() -> None:
    heard = Heard()
    measured(matrix=replace(MATRIX, streams=(1,), runs=2), listener=heard)
    cell = [line for line in heard.lines if line[0] == "replied"][:6]
    assert heard.lines[0] == ("began", SERIAL, 1, 6)
    assert cell == [("replied", done) for done in range(1, 7)]
    assert heard.lines[7] == ("measured", SERIAL, 1)


def test_where_windows_have_one_row_only_serial_decoding_is_measured() -> None:
    outcome = measured(model(chain_width=1, tree_width=1))
    assert {row.mode for row in outcome.rows} == {SERIAL}


def test_a_reply_that_is_not_the_serial_one_ends_the_benchmark_and_its_place_is_named() -> None:
    with pytest.raises(NotEqualError) as found:
        measured(DriftingModel(3, LAW, prefill_slice=64))
    assert found.value.message.startswith("drafts")
    assert "the reply to prompt 'question-" in found.value.message
    assert " leaves the serial reply at token " in found.value.message


def test_a_fault_that_only_shared_rounds_bring_is_found_in_the_first_cell_that_has_them() -> None:
    heard = Heard()
    with pytest.raises(NotEqualError, match=r"^serial, 2 streams: "):
        measured(StreamsDriftingModel(LAW, prefill_slice=64), listener=heard)
    assert [line for line in heard.lines if line[0] == "measured"] == [("measured", SERIAL, 1)]


@pytest.mark.parametrize(
    ("expected", "got", "words"),
    [
        ((1, 2, 3), (1, 5, 3), "leaves the serial reply at token 1: expected id 2, got 5"),
        ((1, 2, 3), (1, 2), "has 2 tokens where the serial reply has 3"),
    ],
)
def test_a_difference_is_named_by_its_first_token_or_by_length(
    expected: tuple[int, ...], got: tuple[int, ...], words: str
) -> None:
    assert difference(expected, got) == words


def test_a_prompt_that_does_not_fit_the_window_is_refused_before_anything_runs() -> None:
    heard = Heard()
    with pytest.raises(RefusedError, match=r"prompt 'question-0' has 20 ids, and with --tokens 24 it .* window of 43;"):
        measured(listener=heard, context=43)
    assert heard.lines == []


def test_a_request_that_fails_ends_the_benchmark_in_one_sentence_and_leaves_nothing_running() -> None:
    prompt = QUESTIONS[1].prompt
    broken = FaultyModel(model(), [Fault("launch", prompt=lambda ids: tuple(ids[:20]) == prompt)])
    clock, record = FakeClock(), records()
    with scheduled(broken, record, clock) as scheduler:
        runner = CellRunner(scheduler, clock)
        requests = [GenerationRequest(q.prompt, q.sampling, 24, ignore_eos=True) for q in QUESTIONS]
        with pytest.raises(RefusedError, match=r"^A request of the benchmark failed: "):
            runner.run(requests, 3)
        # What ran beside it was cancelled, so the same scheduler measures on at once.
        assert len(runner.run(requests[:1], 1).answers) == 1


def test_a_request_that_the_scheduler_refuses_ends_the_benchmark_in_one_sentence() -> None:
    clock, record = FakeClock(), records()
    with scheduled(model(), record, clock, context=30) as scheduler:
        request = GenerationRequest(QUESTIONS[0].prompt, Sampling(), 24)
        with pytest.raises(RefusedError, match=r"^A request of the benchmark was refused: This model's maximum"):
            CellRunner(scheduler, clock).run([request], 1)


def test_a_slowed_second_run_is_found_and_its_cell_named() -> None:
    # One stream, so that no thread's timing decides who shares a round.
    matrix = replace(MATRIX, streams=(1,))
    before = result_of(measured(matrix=matrix, launch_s=0.01).rows)
    after = result_of(measured(matrix=matrix, launch_s=0.0125).rows)
    same = compare(before, before, ("a.json", "b.json"), 0.1)
    slowed = compare(before, after, ("a.json", "b.json"), 0.1)
    assert same.slower == ()
    assert {pair.after.key for pair in slowed.slower} == {row.key for row in before.rows}
    assert all(pair.ratio == pytest.approx(0.8) for pair in slowed.pairs)
    assert compare(before, after, ("a.json", "b.json"), 0.21).slower == ()


def test_every_stream_gets_a_request_however_few_the_prompts() -> None:
    question = Question("one", (1, 2, 3), Sampling())
    assert Matrix((question,), 8, 1, (1, 8)).passes == 8
    assert Matrix((question,) * 3, 8, 1, (4,)).passes == 2
    assert Matrix((question,) * 3, 8, 5, (4,)).passes == 5


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([3.0], 50, 3.0), ([3.0], 99, 3.0), ([4.0, 1.0, 3.0, 2.0], 50, 2.0), (list(range(1, 101)), 99, 99)],
)
def test_a_percentile_is_one_of_the_values(values: list[float], share: int, expected: float) -> None:
    assert percentile(values, share) == expected
