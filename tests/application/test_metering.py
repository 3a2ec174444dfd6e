"""The meter: what is counted when, and readings that hold together while another thread writes."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.application.counters import Counters
from tensorfold.application.health import HealthService
from tensorfold.application.measures import MeasureService
from tensorfold.application.metering import ENDINGS, REPLY_EDGES, TOKEN_EDGES, Histogram, Meter
from tensorfold.application.replies import GenerationRequest, ReplyStats
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.sampling import Sampling
from tests.application.house import idle, law, read, serving
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.hash_model import HashModel

NOBODY: Any = None
"""The meter looks at no request."""


def test_a_value_on_an_edge_lies_below_it_and_one_past_all_edges_is_counted() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0, -3.0):
        histogram.observe(value)
    figures = histogram.figures()
    assert (figures.edges, figures.counts, figures.total) == ((1.0, 2.0), (3, 2, 1), 14.0)


def test_edges_grow() -> None:
    for edges in (REPLY_EDGES, TOKEN_EDGES):
        assert list(edges) == sorted(set(edges))


def test_a_whole_reply_is_timed_in_every_histogram() -> None:
    meter = Meter()
    stats = ReplyStats(3, 5, queue_s=0.02, prefill_s=0.3, ttft_s=0.4, decode_s=2.0)
    meter.done(NOBODY, stats, "length")
    figures = meter.figures()
    totals = [figures.whole, figures.first, figures.token, figures.queue, figures.prefill, figures.decode]
    assert [each.total for each in totals] == [2.4, 0.4, 0.5, 0.02, 0.3, 2.0]
    assert [sum(each.counts) for each in totals] == [1] * 6
    assert sum(figures.gap.counts) == 0


def test_a_reply_of_one_token_has_no_time_between_tokens() -> None:
    meter = Meter()
    meter.done(NOBODY, ReplyStats(3, 1, ttft_s=0.4), "stop")
    assert (sum(meter.figures().token.counts), sum(meter.figures().whole.counts)) == (0, 1)


@pytest.mark.parametrize("reason", ["cancelled", "error"])
@pytest.mark.parametrize("stats", [None, ReplyStats(3, 5, decode_s=1.0)])
def test_a_reply_that_was_cut_short_is_counted_and_not_timed(reason: str, stats: ReplyStats | None) -> None:
    meter = Meter()
    meter.done(NOBODY, stats, reason)
    figures = meter.figures()
    assert figures.endings == dict.fromkeys(ENDINGS, 0) | {reason: 1}
    assert sum(figures.whole.counts) == sum(figures.decode.counts) == 0


def test_a_reading_does_not_change_afterwards() -> None:
    meter = Meter()
    before = meter.figures()
    meter.done(NOBODY, ReplyStats(1, 2), "stop")
    meter.landed(0.1)
    assert sum(before.whole.counts) == sum(before.gap.counts) == before.endings["stop"] == 0


def test_the_scheduler_tells_the_meter_of_every_reply_and_of_every_round_behind_the_first() -> None:
    meter = Meter()
    with serving(HashModel(law(3)), meter=meter) as scheduler:
        request = GenerationRequest((1, 2, 3), Sampling(), max_tokens=9, draft=False, ignore_eos=True)
        for _ in range(2):
            assert len(read(scheduler.submit(request)).ids) == 9
        cancelled = scheduler.submit(GenerationRequest((1, 2, 3), Sampling(), max_tokens=200, ignore_eos=True))
        cancelled.cancel()
        read(cancelled)
        figures = meter.figures()
        assert figures.endings == {"stop": 0, "length": 2, "cancelled": 1, "error": 0}
        assert sum(figures.whole.counts) == sum(figures.token.counts) == 2
        assert sum(figures.gap.counts) >= 2 * 8
        assert scheduler.counters.filled_tokens >= 2 * 2


def test_a_reply_that_failed_is_an_error_to_the_meter() -> None:
    meter = Meter()
    with serving(FaultyModel(HashModel(law(3)), [Fault("launch")]), meter=meter) as scheduler:
        read(scheduler.submit(GenerationRequest((1, 2, 3), Sampling(), max_tokens=5)))
        assert meter.figures().endings["error"] == 1


@pytest.mark.parametrize(("parallel", "shares"), [(1, False), (2, True)])
def test_a_reading_says_what_runs_and_what_applies(parallel: int, shares: bool) -> None:
    meter = Meter()
    settings = EngineSettings(parallel=parallel)
    with serving(HashModel(law(3)), settings=settings, meter=meter) as scheduler:
        service = MeasureService(scheduler, meter, HealthService(scheduler, {}).status, drafts=True)
        read(scheduler.submit(GenerationRequest((1, 2, 1, 2, 1), Sampling(), max_tokens=9, ignore_eos=True)))
        idle(scheduler)
        measured = service.read()
        assert (measured.status, measured.decoding, measured.filling, measured.waiting) == ("ok", 0, 0, 0)
        assert (measured.parallel, measured.drafts, measured.shares) == (parallel, True, shares)
        assert measured.counters.requests == measured.replies.endings["length"] == 1
        assert isinstance(measured.counters, Counters) and measured.counters is not scheduler.counters
        assert measured.counters.drafted is not scheduler.counters.drafted
