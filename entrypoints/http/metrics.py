"""`/metrics`: figures for Prometheus. No id, no text and no key is in them.

Names of vLLM where the meaning is the same, so that dashboards made for it work; our own for everything else. What this
server does not do has no family: no record, no drafts, no sharing, no zero that never moves.
"""

from __future__ import annotations

from collections.abc import Iterator

import falcon

from tensorfold.application.measures import Measures
from tensorfold.application.memory_figures import MemoryFigures
from tensorfold.application.metering import HistogramFigures
from tensorfold.application.recall import RecallReport
from tensorfold.entrypoints.http.exposition import (
    CONTENT_TYPE,
    Family,
    Labels,
    by_label,
    histogram,
    single,
    states,
    text_of,
)
from tensorfold.entrypoints.http.gate import Gate
from tensorfold.entrypoints.http.services import Services

STATES = ("loading", "ok", "stuck", "draining", "failed")
RECALL_STATES = ("loading", "on", "read-only", "second", "paused", "delete-failed")
FINISHED = {"stop": "stop", "length": "length", "cancelled": "abort", "error": "error"}
"""Our endings in vLLM's words."""


class MetricsRoute:
    """200 at any time: a server that still loads says so and has no figures yet."""

    def __init__(self, services: Services, gate: Gate, version: str) -> None:
        self._services = services
        self._gate = gate
        self._version = version

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Everything that is measured, as text."""
        resp.content_type = CONTENT_TYPE
        resp.set_header("Cache-Control", "no-store")
        resp.data = text_of(self._families())

    def on_head(self, req: falcon.Request, resp: falcon.Response) -> None:
        """As GET, without the body."""
        self.on_get(req, resp)

    def _families(self) -> Iterator[Family]:
        services = self._services
        measured = None if services.measures is None else services.measures.read()
        status = "loading" if measured is None else "draining" if self._gate.draining else measured.status
        backend = {} if measured is None else {"backend": services.facts.engine}
        yield single("tensorfold_info", "gauge", "What serves.", 1, {"version": self._version, **backend})
        yield states("tensorfold_state", "The server's state, as health has it.", STATES, status)
        if measured is not None:
            yield from _requests(measured, {"model_name": services.facts.names[0]})
            yield from _engine(measured)
            if measured.memory is not None:
                yield from _memory(measured, measured.memory)
            if measured.drafts:
                yield from _drafts(measured, {"model_name": services.facts.names[0]})
        yield single(
            "tensorfold_client_disconnections_total", "counter",
            "Clients that left before their reply was whole.", self._gate.disconnections,
        )  # fmt: skip
        if services.opened_recall is not None:
            yield from _recall(services.opened_recall.report())


def _requests(measured: Measures, model: Labels) -> Iterator[Family]:
    counters, replies = measured.counters, measured.replies
    running = measured.decoding + measured.filling
    yield single("vllm:num_requests_running", "gauge", "Requests that hold a lane.", running, model)
    yield single("vllm:num_requests_waiting", "gauge", "Requests that wait for a lane.", measured.waiting, model)
    yield single("vllm:prompt_tokens_total", "counter", "Prompt tokens.", counters.prompt_tokens, model)
    if counters.cached_tokens:
        yield single(
            "vllm:prompt_tokens_cached_total", "counter", "Prompt tokens that kept states spared.",
            counters.cached_tokens, model,
        )  # fmt: skip
    if counters.preempted:
        yield single("vllm:num_preemptions_total", "counter", "Streams that yielded.", counters.preempted, model)
    yield single("vllm:generation_tokens_total", "counter", "Reply tokens.", counters.completion_tokens, model)
    finished = {FINISHED.get(ending, ending): float(count) for ending, count in replies.endings.items()}
    yield by_label(
        "vllm:request_success_total", "counter", "Requests that ended, by why.", "finished_reason", finished, model
    )
    for name, text, figures in (
        ("e2e_request_latency", "From a request's arrival to the end of its reply.", replies.whole),
        ("time_to_first_token", "From a request's arrival to its first token.", replies.first),
        ("inter_token_latency", "Between two rounds of one reply.", replies.gap),
        ("request_time_per_output_token", "A reply's mean time for a token after its first.", replies.token),
        ("request_queue_time", "From a request's arrival to its lane.", replies.queue),
        ("request_prefill_time", "Reading the prompt.", replies.prefill),
        ("request_decode_time", "From the first token to the last.", replies.decode),
    ):
        yield _times(f"vllm:{name}_seconds", text, figures, model)


def _times(name: str, text: str, figures: HistogramFigures, model: Labels) -> Family:
    return histogram(name, text, figures.edges, figures.counts, figures.total, model)


def _engine(measured: Measures) -> Iterator[Family]:
    counters = measured.counters
    streams = {"decoding": float(measured.decoding), "prefilling": float(measured.filling)}
    yield by_label("tensorfold_streams", "gauge", "Streams that hold a lane, by what they do.", "phase", streams)
    yield single("tensorfold_streams_max", "gauge", "Lanes (--parallel).", measured.parallel)
    yield single("tensorfold_requests_total", "counter", "Requests that were taken.", counters.requests)
    yield single("tensorfold_rounds_total", "counter", "Rounds of the engine.", counters.rounds)
    yield single("tensorfold_launches_total", "counter", "Launches of rows on the device.", counters.launches)
    if measured.shares:
        yield single(
            "tensorfold_shared_launches_total", "counter", "Launches of several streams' rows.",
            counters.shared_launches,
        )  # fmt: skip
        yield single(
            "tensorfold_retries_total", "counter", "Shared rounds that failed and ran again, each stream alone.",
            counters.retries,
        )  # fmt: skip
    yield single("tensorfold_rebuilds_total", "counter", "Lanes that were made anew after a fault.", counters.rebuilds)
    yield single(
        "tensorfold_integrity_faults_total", "counter", "Things an idle engine held and should not.",
        counters.integrity_faults,
    )  # fmt: skip
    yield single(
        "tensorfold_prefill_tokens_total", "counter", "Prompt rows absorbed, those of lanes made anew included.",
        counters.filled_tokens,
    )  # fmt: skip
    yield single("tensorfold_prefill_seconds_total", "counter", "Time in prompts on the device.", counters.prefill_s)
    yield single("tensorfold_decode_seconds_total", "counter", "Time in rounds on the device.", counters.decode_s)


_BYTES = {
    "budget": "What this process may take.",
    "model": "What of it weights, lanes, kept prompts and work may take.",
    "weights": "The model's weights, as reckoned.",
    "reserved": "Running streams with what they count with, paused ones with what they hold, and a round's work.",
    "kept_prompts": "States of prompts that are kept.",
    "active": "What the device's allocator has in use.",
    "cached": "Freed buffers that it keeps.",
    "peak": "The most it had in use.",
}


def _memory(measured: Measures, memory: MemoryFigures) -> Iterator[Family]:
    for name, size in memory.known().items():
        yield single(f"tensorfold_memory_{name}_bytes", "gauge", _BYTES[name], size)
    yield single("tensorfold_streams_paused", "gauge", "Streams that wait for memory.", measured.paused)
    yield single(
        "tensorfold_pauses_total", "counter", "Times that memory made a stream wait.", measured.counters.paused
    )
    yield single(
        "tensorfold_lanes_given_up_total", "counter", "Lanes that streams gave up to go on later.",
        measured.counters.dropped,
    )  # fmt: skip


def _drafts(measured: Measures, model: Labels) -> Iterator[Family]:
    counters = measured.counters
    yield single(
        "vllm:spec_decode_num_draft_tokens_total", "counter", "Drafts verified.", counters.drafted_total, model
    )
    yield single("vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafts kept.", counters.kept_total, model)
    yield by_label("tensorfold_drafted_total", "counter", "Drafts verified, by source.", "source", counters.drafted)
    yield by_label("tensorfold_kept_total", "counter", "Drafts kept, by source.", "source", counters.kept)
    yield single(
        "tensorfold_draft_source_faults_total", "counter", "Rounds that went without a source's drafts as it failed.",
        counters.proposer_faults,
    )  # fmt: skip


def _recall(report: RecallReport) -> Iterator[Family]:
    copies = report.copies
    yield states("tensorfold_recall_state", "The record's state.", RECALL_STATES, report.state)
    for name, text, value in (
        ("ids", "Ids in the record.", report.ids),
        ("chunks", "Chunks of the record.", report.chunks),
        ("disk_bytes", "The record on the disk.", report.disk_bytes),
        ("memory_bytes", "The record in memory.", report.memory_bytes),
        ("budget_bytes", "The most the record may take on the disk.", report.budget_bytes),
    ):
        yield single(f"tensorfold_recall_{name}", "gauge", text, value)
    for name, text, value in (
        ("added_ids", "Ids added.", report.added_ids),
        ("held_ids", "Ids of requests that the record held already.", report.held_ids),
        ("dropped_ids", "Ids not added: the writer was behind or adding is paused.", report.dropped_ids),
        ("evicted_ids", "Ids that went to make room.", report.evicted_ids),
        ("offers", "Copies verified.", copies.offers),
        ("probes", "Copies among them that were made to see whether copies land again.", copies.probes),
        ("offered_tokens", "Tokens of copies.", copies.offered_tokens),
        ("landed_tokens", "Tokens of copies that the model drew.", copies.landed_tokens),
        ("missed_offers", "Copies of which no token landed.", copies.missed_offers),
    ):
        yield single(f"tensorfold_recall_{name}_total", "counter", text, value)
