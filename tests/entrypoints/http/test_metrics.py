"""`/metrics`: what a scraper reads, what is left out, and who may ask."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import falcon.testing
import pytest

from tensorfold.application.counters import Counters
from tensorfold.application.measures import Measures
from tensorfold.application.memory_figures import MemoryFigures
from tensorfold.application.metering import Meter
from tensorfold.application.replies import ReplyStats
from tensorfold.entrypoints.http.metrics import RECALL_STATES
from tests.entrypoints.http.exposition import Parsed, parse
from tests.entrypoints.http.fake_recall import FakeRecall
from tests.entrypoints.http.fakes import FakeChat
from tests.entrypoints.http.test_over_engine import served
from tests.entrypoints.http.wire import MESSAGES, Connection, InProcess, error_of, in_process, on_socket

KEYS = {"cli-1": "alpha"}
COUNTED = Counters(
    cached_tokens=6, preempted=1, paused=4, dropped=2,
    requests=9, prompt_tokens=11, completion_tokens=12, filled_tokens=13, rounds=14, launches=15, shared_launches=16,
    retries=17, rebuilds=18, proposer_faults=19, integrity_faults=20, prefill_s=21.5, decode_s=22.25,
    drafted={"copy": 30, "copy+recall": 5}, kept={"copy": 20, "copy+recall": 1},
)  # fmt: skip
MEMORY = MemoryFigures(budget=90, model=87, weights=50, reserved=20, kept=7, active=72, cached=3, peak=80)


class FakeMeasures:
    """Measures as a test sets them."""

    def __init__(self) -> None:
        meter = Meter()
        meter.done(None, ReplyStats(3, 5, queue_s=0.02, prefill_s=0.3, ttft_s=0.4, decode_s=2.0), "stop")  # type: ignore[arg-type]
        meter.done(None, None, "cancelled")  # type: ignore[arg-type]
        self.now = Measures("ok", 2, 1, 4, 8, True, True, COUNTED, meter.figures(), 1, MEMORY)

    def read(self) -> Measures:
        return self.now


def scraped(server: InProcess, path: str = "/metrics", **headers: str) -> dict[str, Parsed]:
    return read(server.client.simulate_get(path, headers=headers))


def read(result: falcon.testing.Result) -> dict[str, Parsed]:
    assert result.status_code == 200, result.text
    assert result.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert result.headers["cache-control"] == "no-store"
    return parse(result.content)


def test_figures_stand_under_vllms_names_where_they_mean_the_same() -> None:
    found = scraped(in_process(measures=FakeMeasures()))
    model = {"model_name": "org/tiny"}
    values = {
        "vllm:num_requests_running": 3, "vllm:num_requests_waiting": 4, "vllm:prompt_tokens_total": 11,
        "vllm:generation_tokens_total": 12, "vllm:prompt_tokens_cached_total": 6, "vllm:num_preemptions_total": 1,
        "vllm:spec_decode_num_draft_tokens_total": 35,
        "vllm:spec_decode_num_accepted_tokens_total": 21,
    }  # fmt: skip
    assert {name: found[name].value(**model) for name in values} == values
    finished = found["vllm:request_success_total"]
    assert {why: finished.value(finished_reason=why) for why in ("stop", "length", "abort", "error")} == {
        "stop": 1, "length": 0, "abort": 1, "error": 0,
    }  # fmt: skip
    times = {
        "e2e_request_latency": 2.4, "time_to_first_token": 0.4, "inter_token_latency": 0.0,
        "request_time_per_output_token": 0.5, "request_queue_time": 0.02, "request_prefill_time": 0.3,
        "request_decode_time": 2.0,
    }  # fmt: skip
    sums = {name: found[f"vllm:{name}_seconds"].ending("_sum") for name in times}
    assert sums == {name: {(("model_name", "org/tiny"),): total} for name, total in times.items()}


def test_our_own_figures_stand_under_our_own_names() -> None:
    found = scraped(in_process(measures=FakeMeasures()))
    totals = {
        "requests": 9, "prefill_tokens": 13, "rounds": 14, "launches": 15, "shared_launches": 16, "retries": 17,
        "rebuilds": 18, "draft_source_faults": 19, "integrity_faults": 20, "prefill_seconds": 21.5,
        "decode_seconds": 22.25, "client_disconnections": 0,
    }  # fmt: skip
    assert {name: found[f"tensorfold_{name}_total"].value() for name in totals} == totals
    assert found["tensorfold_streams_max"].value() == 8
    assert found["tensorfold_streams"].value(phase="decoding") == 2
    assert found["tensorfold_streams"].value(phase="prefilling") == 1
    assert found["tensorfold_drafted_total"].value(source="copy+recall") == 5
    assert found["tensorfold_kept_total"].value(source="copy") == 20
    assert found["tensorfold_info"].value(version="1.2.3", backend="fake") == 1


def test_memory_is_told_in_bytes_and_what_the_allocator_cannot_tell_is_absent() -> None:
    measures = FakeMeasures()
    found = scraped(in_process(measures=measures))
    sizes = {
        "budget": 90, "model": 87, "weights": 50, "reserved": 20, "kept_prompts": 7, "active": 72, "cached": 3,
        "peak": 80,
    }  # fmt: skip
    assert {name: found[f"tensorfold_memory_{name}_bytes"].value() for name in sizes} == sizes
    waiting = {"streams_paused": 1, "pauses_total": 4, "lanes_given_up_total": 2}
    assert {name: found[f"tensorfold_{name}"].value() for name in waiting} == waiting
    measures.now = replace(measures.now, memory=replace(MEMORY, active=None, cached=None, peak=None))
    assert set(found) - set(scraped(in_process(measures=measures))) == {
        f"tensorfold_memory_{name}_bytes" for name in ("active", "cached", "peak")
    }
    measures.now = replace(measures.now, memory=None)
    assert not [name for name in scraped(in_process(measures=measures)) if "memory" in name or "pause" in name]


def test_what_does_not_apply_has_no_family() -> None:
    measures = FakeMeasures()
    whole = set(scraped(in_process(measures=measures)))
    measures.now = replace(measures.now, drafts=False, shares=False)
    assert whole - set(scraped(in_process(measures=measures))) == {
        "tensorfold_shared_launches_total", "tensorfold_retries_total", "tensorfold_drafted_total",
        "tensorfold_kept_total", "tensorfold_draft_source_faults_total", "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
    }  # fmt: skip
    measures.now = replace(FakeMeasures().now, counters=replace(COUNTED, cached_tokens=0, preempted=0))
    assert whole - set(scraped(in_process(measures=measures))) == {
        "vllm:prompt_tokens_cached_total", "vllm:num_preemptions_total",
    }  # fmt: skip
    assert not [name for name in whole if "recall" in name]


def test_sources_that_drafted_nothing_yet_have_no_sample() -> None:
    measures = FakeMeasures()
    measures.now = replace(measures.now, counters=Counters())
    assert "tensorfold_drafted_total" not in scraped(in_process(measures=measures))


@pytest.mark.parametrize("status", ["ok", "stuck", "draining", "failed"])
def test_the_state_is_the_one_that_health_has(status: str) -> None:
    measures = FakeMeasures()
    measures.now = replace(measures.now, status=status)  # type: ignore[arg-type]
    state = scraped(in_process(measures=measures))["tensorfold_state"]
    assert {labels[0][1]: value for (_, labels), value in state.samples.items()} == {
        "loading": 0, "ok": 0, "stuck": 0, "draining": 0, "failed": 0, status: 1,
    }  # fmt: skip


def test_while_the_model_loads_the_state_is_all_there_is() -> None:
    found = scraped(in_process(ready=False))
    assert set(found) == {"tensorfold_info", "tensorfold_state", "tensorfold_client_disconnections_total"}
    assert found["tensorfold_state"].value(state="loading") == 1


def test_a_server_that_ends_says_so() -> None:
    server = in_process(measures=FakeMeasures())
    server.gate.drain(5.0)
    assert scraped(server)["tensorfold_state"].value(state="draining") == 1


def test_clients_that_left_are_counted() -> None:
    server = in_process()
    server.gate.enter()
    server.gate.leave(disconnected=True)
    assert scraped(server)["tensorfold_client_disconnections_total"].value() == 1


def test_a_record_is_shown_in_figures_even_while_the_model_loads() -> None:
    recall = FakeRecall()
    found = scraped(in_process(recall=recall, expects_recall=True, ready=False))
    report = recall.report()
    state = found["tensorfold_recall_state"]
    assert [s for s in RECALL_STATES if state.value(state=s)] == [report.state]
    for name in ("ids", "chunks", "disk_bytes", "memory_bytes", "budget_bytes"):
        assert found[f"tensorfold_recall_{name}"].value() == getattr(report, name)
    for name in ("added_ids", "held_ids", "dropped_ids", "evicted_ids"):
        assert found[f"tensorfold_recall_{name}_total"].value() == getattr(report, name)
    for name in ("offers", "probes", "offered_tokens", "landed_tokens", "missed_offers"):
        assert found[f"tensorfold_recall_{name}_total"].value() == getattr(report.copies, name)
    text = in_process(recall=recall).client.simulate_get("/metrics").text
    assert report.directory not in text and report.tokenizer not in text


def test_a_record_that_is_asked_for_and_not_open_yet_is_absent() -> None:
    assert not [name for name in scraped(in_process(expects_recall=True, ready=False)) if "recall" in name]


@pytest.mark.parametrize("path", ["/metrics", "/v1/metrics", "//metrics/"])
def test_with_keys_metrics_need_one_unless_they_are_open(path: str) -> None:
    closed = in_process(keys=KEYS, measures=FakeMeasures())
    refused = closed.client.simulate_get(path)
    assert (refused.status_code, error_of(refused)["code"]) == (401, "invalid_api_key")
    assert scraped(closed, path, Authorization="Bearer alpha")
    assert scraped(in_process(keys=KEYS, metrics_open=True), path)


def test_open_metrics_open_nothing_else() -> None:
    server = in_process(keys=KEYS, metrics_open=True)
    for path in ("/v1/models", "/v1/recall", "/metrics/x", "/v1/metrics/..", "/metricsx"):
        assert server.client.simulate_get(path).status_code == 401
    assert server.post({"messages": MESSAGES}).status_code == 401


def test_a_loopback_server_shows_its_metrics_under_no_foreign_name() -> None:
    assert in_process().client.simulate_get("/metrics", headers={"Host": "evil.example"}).status_code == 403


def test_a_head_has_no_body_and_other_methods_are_refused_and_nothing_is_logged() -> None:
    server = in_process()
    head = server.client.simulate_head("/metrics")
    assert (head.status_code, head.content) == (200, b"")
    assert scraped(server) and not server.told.access
    assert server.client.simulate_post("/metrics").status_code == 405


def test_a_model_name_full_of_quotes_is_a_label_like_any_other() -> None:
    name = 'it\'s "tiny" \\ é'
    found = scraped(in_process(FakeChat(names=(name,)), measures=FakeMeasures()))
    assert found["vllm:num_requests_running"].value(model_name=name) == 3


def test_over_a_socket_the_text_arrives_whole() -> None:
    with on_socket() as server:
        client = server.connect()
        client.send("GET", "/metrics")
        status, headers, body = client.answer()
        assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert parse(body)["tensorfold_state"].value(state="loading") == 1


def scrape(port: int) -> dict[str, Parsed]:
    client = Connection(port)
    client.send("GET", "/metrics")
    status, _, body = client.answer()
    client.close()
    assert status == 200
    return parse(body)


def test_a_reply_is_counted_before_its_client_has_read_its_end() -> None:
    with served() as (server, _):
        for count in (1, 2):
            client = Connection(server.port)
            body = {"prompt": [5, 6, 7, 8], "max_tokens": 6, "ignore_eos": True, "draft": False}
            client.send("POST", "/v1/completions", body)
            assert client.answer()[0] == 200
            client.close()
            found = scrape(server.port)
            assert found["vllm:request_success_total"].value(finished_reason="length") == count
            assert found["vllm:generation_tokens_total"].value() == 6 * count
            assert found["vllm:prompt_tokens_total"].value() == 4 * count
            assert sum(found["vllm:e2e_request_latency_seconds"].ending("_count").values()) == count
            assert sum(found["vllm:inter_token_latency_seconds"].ending("_count").values()) == 5 * count
            assert found["tensorfold_rounds_total"].value() == 6 * count
            assert found["tensorfold_prefill_tokens_total"].value() == 3 * count


def test_no_word_id_or_key_of_a_request_is_in_the_metrics() -> None:
    with served() as (server, _):
        client = Connection(server.port)
        word = "xylophone"
        client.send(
            "POST", "/v1/chat/completions",
            {"messages": [{"role": "user", "content": word}], "max_tokens": 5, "return_token_ids": True, "user": word},
            {"Authorization": "Bearer secret-key"},
        )  # fmt: skip
        reply = json.loads(client.answer()[2])
        assert reply["tensorfold"]["token_ids"]
        client.send("GET", "/metrics", headers={"Authorization": "Bearer secret-key"})
        text = client.answer()[2].decode()
        parse(text.encode())
        assert word not in text and "secret-key" not in text and "cli-" not in text
        assert reply["id"].removeprefix("chatcmpl-") not in text and reply["tensorfold"]["token_sha"] not in text
        assert set(re.findall(r'([a-z_]+)="', text)) == {
            "version", "backend", "state", "model_name", "finished_reason", "le", "phase", "source",
        } - ({"source"} if "source=" not in text else set())  # fmt: skip


def test_every_family_is_described_and_no_other() -> None:
    found = scraped(in_process(measures=FakeMeasures(), recall=FakeRecall()))
    page = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
    described = set(re.findall(r"`((?:vllm:|tensorfold_)[a-z0-9_]+)`", page))
    assert described == set(found)
