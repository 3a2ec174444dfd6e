"""The GPU benchmark's own arithmetic and its runs over a hash model: what it measures is checked where no card is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.ports.target_model import Draws, Ticket
from tests.benchmarks import gpu_model, gpu_serving
from tests.benchmarks.gpu_engine import ask, prompt_ids, rate_between, request, running, unequal
from tests.benchmarks.gpu_figures import Bound, judged
from tests.benchmarks.gpu_following import Following, rewritten
from tests.benchmarks.gpu_model import Measures, Sizes
from tests.benchmarks.gpu_profile import per_round
from tests.fakes.hash_head import HashHead
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.wrapped_model import WrappedModel
from tests.tree import ROOT

SMALL = Sizes(prompt=40, reply=24, rows=(1, 2, 4), prompts=(64,), repeats=2)


def hash_model(**changes: Any) -> HashModel:
    return HashModel(HashLaw(vocabulary=512, salt=7), one_thread=False, **{"head": HashHead(), **changes})


def clocked(run: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    return run(), time.perf_counter() - began


def silent(line: str) -> None: ...


def test_a_figure_that_was_not_measured_is_missed() -> None:
    words, met = judged({"a": 3.0}, [Bound("a", least=2, aim=4), Bound("b", most=1)])
    assert not met
    assert words == "a 3 (least 2, aim 4); b not measured (most 1) MISSED"


def test_a_figure_at_its_bound_is_enough() -> None:
    assert judged({"a": 2.0, "b": 1.0}, [Bound("a", least=2), Bound("b", most=1)])[1]


def test_the_rate_of_several_streams_is_that_of_the_time_they_share() -> None:
    first = [(0.0, 1), (1.0, 1), (2.0, 1), (3.0, 1)]
    second = [(1.0, 1), (2.0, 3), (4.0, 1)]
    assert rate_between([first, second]) == pytest.approx((2 + 3) / 2.0)
    assert rate_between([first, [(9.0, 1), (10.0, 1)]]) == 0.0


def test_a_kernel_adds_what_it_ends_behind_the_one_before_it() -> None:
    # "two" is started early and waits for "one"; a pause of the host's is nobody's.
    events = [("two", 1.0, 9.0), ("one", 0.0, 6.0), ("one", 100.0, 103.0), ("two", 101.0, 104.0)]
    kernels = per_round(events, 2)
    assert list(kernels.items()) == [
        ("one", {"launches": 1.0, "us": 4.5, "busy us": 4.5}),
        ("two", {"launches": 1.0, "us": 2.0, "busy us": 5.5}),
    ]
    assert per_round([], 1) == {}


def test_every_part_of_a_models_measures_runs_and_finds_no_difference() -> None:
    kernels = per_round([("one", 0.0, 3.0)], 1)
    told = {"by rows": {"1": kernels}, "record": "off"}
    made = gpu_model.measure(hash_model(), "nemotron", clocked, silent, SMALL, profile=lambda: told)
    assert made.failed == {}
    assert made.parts["profile"] is told
    assert made.differences == 0
    assert made.compared > 24 * 8
    assert {"serial", "rounds", "copied", "drafted", "prompts"} <= set(made.parts)
    assert all("record" in part for part in made.parts.values())
    assert made.parts["copied"]["greedy"]["landed"] > 0
    assert made.values["drafted tokens/s"] > 0


def test_a_step_that_fails_is_named_and_costs_its_own_figures_alone() -> None:
    class Broken(WrappedModel):
        def propose(self, specs: Any) -> Any:
            raise SystemError("no head here")

        def open(self, capacity: int) -> int:
            if capacity > 500:
                raise ValueError("too much")
            return self.inner.open(capacity)

    made = gpu_model.measure(Broken(hash_model()), "nemotron", clocked, silent, replace(SMALL, prompts=(600,)))
    assert list(made.failed) == ["prompts", "drafted"]
    assert "the head drafted nothing" in made.failed["drafted"]
    assert made.values["serial tokens/s"] > 0


def test_no_step_is_begun_where_no_time_is_left_and_each_is_named() -> None:
    made = gpu_model.measure(hash_model(), "nemotron", clocked, silent, SMALL, until=time.monotonic() - 1)
    assert set(made.failed.values()) == {"no time was left for it"}
    assert len(made.failed) == 7
    assert made.values == {}


def test_a_profile_that_keeps_so_many_tokens_a_round_is_searched_for() -> None:
    asked: list[float] = []

    def run(chance: float) -> dict[str, float]:
        asked.append(chance)
        return {"tokens a round": 10 * chance}

    found = gpu_model._at_a_round(8.5, run)
    assert found is not None
    assert abs(found["tokens a round"] - 8.5) < 0.2
    assert len(asked) <= 8
    assert gpu_model._at_a_round(99.0, run) is None


def test_the_nearest_profile_counts_where_tokens_a_round_leap() -> None:
    def run(chance: float) -> dict[str, float]:
        return {"tokens a round": 5.3 if chance < 0.85 else 5.9}

    assert gpu_model._at_a_round(5.5, run) == {"tokens a round": 5.3}


def test_a_profile_that_keeps_somewhat_fewer_counts_where_none_is_near() -> None:
    found = iter((3.5, 4.9, 7.8, 6.4, 5.12, 5.0, 6.2, 6.0))
    assert gpu_model._at_a_round(5.5, lambda chance: {"tokens a round": next(found)}) == {"tokens a round": 5.12}
    found = iter((3.5, 4.9, 7.8, 6.4, 4.8, 4.7, 6.2, 6.0))
    assert gpu_model._at_a_round(5.5, lambda chance: {"tokens a round": next(found)}) is None


def test_a_model_that_draws_another_token_in_a_window_is_noticed() -> None:
    class Wider(WrappedModel):
        def collect(self, ticket: Ticket) -> Draws:
            draws = self.inner.collect(ticket)
            if not any(len(row) > 3 for row in draws.tokens):
                return draws
            return replace(draws, tokens=tuple([(token + 1) % 512 for token in row] for row in draws.tokens))

    made = Measures()
    serial = gpu_model.serially(hash_model(), made, silent, SMALL)
    gpu_model.copied(Wider(hash_model()), serial, made, silent)
    assert made.values["differences"] > 0


def test_streams_that_share_rounds_and_http_are_compared_with_solo_replies() -> None:
    made = gpu_serving.measure(hash_model(max_streams=8), silent, streams=(1, 4), reply=40)
    assert made.failed == {}
    assert made.differences == 0
    assert made.parts["http"]["whole"] == 4
    assert made.values["4 streams tokens/s"] > 0
    assert made.values["4 streams half sampled tokens/s"] > 0
    assert all(part["record"] == "off" for part in made.parts.values())


def test_a_reply_that_differs_in_company_is_noticed_and_what_fails_there_is_named() -> None:
    class Crowded(WrappedModel):
        def collect(self, ticket: Ticket) -> Draws:
            draws = self.inner.collect(ticket)
            if len(draws.tokens) < 4:
                return draws
            return replace(draws, tokens=tuple([(token + 1) % 512 for token in row] for row in draws.tokens))

    made = gpu_serving.measure(Crowded(hash_model(max_streams=8)), silent, streams=(2, 4), reply=24)
    assert made.values["differences"] > 0
    made = gpu_serving.measure(hash_model(max_streams=8, context=150), silent, streams=(1, 2), reply=24)
    assert {"solo", "streams"} <= set(made.failed)


def test_a_rewritten_file_is_followed_whatever_is_drafted_and_copies_of_it_land() -> None:
    model = hash_model(chain_width=16, context=8192)
    text, prompt = rewritten(ROOT / "tests" / "benchmarks" / "gpu_figures.py", 512, 200)
    follower = Following(model, [text])
    with running(follower) as scheduler:
        reply = ask(scheduler, request(text[:prompt], len(text) - prompt, draft=True))
    assert reply.ids == text[prompt:]
    assert reply.stats.accepted > 100
    with running(follower, drafts=False) as scheduler:
        assert ask(scheduler, request(text[:prompt], len(text) - prompt)).ids == text[prompt:]


def test_a_prompt_that_begins_no_text_is_answered_by_the_model_itself() -> None:
    model = hash_model()
    prompt = prompt_ids(512, 20, 1)
    with running(model) as scheduler:
        own = ask(scheduler, request(prompt, 20))
    with running(Following(model, [(1, 2, 3)])) as scheduler:
        assert unequal([own], [ask(scheduler, request(prompt, 20, draft=True))]) == 0


def test_a_record_of_a_reply_lies_in_the_folder_it_was_given(tmp_path: Path) -> None:
    from tests.benchmarks.gpu_engine import record

    with record(tmp_path / "record", 512) as service:
        service.record(tuple(range(3, 200)), 0, service.began())
        service.settle(10.0)
        assert service.report().ids > 0
    assert list((tmp_path / "record").iterdir())
