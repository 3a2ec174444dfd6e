"""`/v1/recall`: figures for whoever may see them, and a record that is emptied or says why it is not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tensorfold.application.recall import RecallConflictError, RecallDeleteError
from tests.entrypoints.http.fake_recall import EMPTY, REPORT, FakeRecall
from tests.entrypoints.http.wire import MESSAGES, Connection, error_of, in_process, on_socket

PATHS = ("/v1/recall", "/recall", "/v1/recall/", "//v1//recall", "/v1/recall?beta=true")
SHOWN = {
    "object": "recall",
    "state": "on",
    "dir": "folder/of/ids",
    "tokenizer": "sha256:" + "ab12" * 16,
    "vocabulary": 267,
    "model": "tiny",
    "ids": 1234567,
    "chunks": 2,
    "disk_bytes": 4938268,
    "memory_bytes": 25165824,
    "budget_bytes": 67108864,
    "added_ids": 1000,
    "held_ids": 2000,
    "dropped_ids": 3,
    "evicted_ids": 4,
    "offers": 9,
    "probes": 2,
    "offered_tokens": 120,
    "landed_tokens": 101,
    "missed_offers": 1,
    "classes": [
        {"match": "16-31", "offers": 4, "offered_tokens": 40, "landed_tokens": 30, "expected": 4.25},
        {"match": "32-63", "offers": 3, "offered_tokens": 40, "landed_tokens": 35, "expected": 5.123},
        {"match": "64+", "offers": 2, "offered_tokens": 40, "landed_tokens": 36, "expected": 6.5},
    ],
    "reason": None,
}
KEY = {"x-api-key": "alpha"}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.slow
def test_get_shows_every_figure_of_the_record_and_is_kept_by_no_cache(path: str) -> None:
    got = in_process(recall=FakeRecall()).client.simulate_get(path)
    assert (got.status_code, got.json) == (200, SHOWN)
    assert list(got.json) == list(SHOWN)
    assert got.headers["content-type"] == "application/json"
    assert got.headers["cache-control"] == "no-store"


def test_head_is_get_without_its_body() -> None:
    head = in_process(recall=FakeRecall()).client.simulate_head("/v1/recall")
    assert (head.status_code, head.text, head.headers["cache-control"]) == (200, "", "no-store")


@pytest.mark.parametrize("state", ["loading", "read-only", "second", "paused", "delete-failed"])
def test_get_names_the_state_and_its_reason(state: str) -> None:
    report = replace(REPORT, state=state, reason="under 4 GiB are free")
    got = in_process(recall=FakeRecall(report)).client.simulate_get("/v1/recall")
    assert (got.status_code, got.json["state"], got.json["reason"]) == (200, state, "under 4 GiB are free")


@pytest.mark.parametrize("path", PATHS)
def test_delete_empties_the_record_and_shows_it_empty(path: str) -> None:
    recall = FakeRecall()
    client = in_process(recall=recall).client
    emptied = client.simulate_delete(path)
    assert (emptied.status_code, recall.deletes) == (200, 1)
    assert emptied.json == client.simulate_get(path).json
    assert (emptied.json["ids"], emptied.json["disk_bytes"], emptied.json["landed_tokens"]) == (0, 0, 0)
    assert (emptied.json["state"], emptied.json["classes"]) == ("on", [])
    assert emptied.headers["cache-control"] == "no-store"


def test_delete_takes_any_body_and_reads_none() -> None:
    assert in_process(recall=FakeRecall()).client.simulate_delete("/v1/recall", body=b"{nonsense").status_code == 200


def test_without_a_record_get_says_off_and_delete_is_404() -> None:
    client = in_process().client
    got = client.simulate_get("/v1/recall")
    assert (got.status_code, got.json) == (200, {"object": "recall", "state": "off"})
    refused = client.simulate_delete("/v1/recall")
    assert refused.status_code == 404
    error = error_of(refused)
    assert (error["type"], error["code"]) == ("invalid_request_error", None)
    assert error["message"] == "This server keeps no record; `--recall` at its start makes it keep one."


def test_a_record_that_this_server_may_not_empty_is_409_and_not_retried() -> None:
    recall = FakeRecall(refusal=RecallConflictError("Another server writes this record."))
    refused = in_process(recall=recall).client.simulate_delete("/v1/recall")
    assert refused.status_code == 409
    assert refused.headers["x-should-retry"] == "false"
    assert error_of(refused) == {
        "message": "Another server writes this record.",
        "type": "invalid_request_error",
        "param": None,
        "code": "recall_read_only",
    }


def test_a_chunk_that_cannot_be_deleted_is_500_that_names_it_and_is_not_retried() -> None:
    recall = FakeRecall(refusal=RecallDeleteError("00000003.ids could not be deleted."))
    server = in_process(recall=recall)
    refused = server.client.simulate_delete("/v1/recall")
    assert refused.status_code == 500
    assert refused.headers["x-should-retry"] == "false"
    assert error_of(refused) == {
        "message": "00000003.ids could not be deleted.",
        "type": "server_error",
        "param": None,
        "code": "recall_delete_failed",
    }
    assert not server.told.faults


def test_a_fault_of_the_record_is_a_500_without_its_text() -> None:
    server = in_process(recall=FakeRecall(refusal=OSError("ids 12, 34, 56")))
    refused = server.client.simulate_delete("/v1/recall")
    assert refused.status_code == 500
    assert "12" not in error_of(refused)["message"]
    assert len(server.told.faults) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
@pytest.mark.parametrize("path", PATHS)
def test_with_keys_every_method_needs_one(method: str, path: str) -> None:
    recall = FakeRecall()
    client = in_process(recall=recall, keys={"cli-1": "alpha"}).client
    for headers in ({}, {"x-api-key": "beta"}):
        assert client.simulate_request(method, path, headers=headers).status_code == 401
    assert recall.deletes == 0
    assert client.simulate_request(method, path, headers=KEY).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_other_methods_are_405_that_names_those_it_takes(method: str) -> None:
    recall = FakeRecall()
    refused = in_process(recall=recall).client.simulate_request(method, "/v1/recall", body=b"{}")
    assert refused.status_code == 405
    assert {"GET", "HEAD", "DELETE"} <= set(refused.headers["allow"].split(", "))
    assert method in error_of(refused)["message"]
    assert recall.deletes == 0


def test_the_record_answers_while_the_model_loads() -> None:
    recall = FakeRecall(replace(REPORT, state="loading"))
    server = in_process(recall=recall, expects_recall=True, ready=False)
    assert server.client.simulate_get("/v1/recall").json["state"] == "loading"
    assert server.client.simulate_delete("/v1/recall").status_code == 200
    assert server.ask().status_code == 503


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_until_the_record_is_open_its_route_is_503(method: str) -> None:
    refused = in_process(expects_recall=True, ready=False).client.simulate_request(method, "/v1/recall")
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    error = error_of(refused)
    assert error["code"] == "overloaded"
    assert error["message"] == "The record is not open yet; it is before the model's weights are read."


def test_a_browsers_page_of_a_listed_origin_may_empty_it_and_others_may_not() -> None:
    asked = {"Origin": "http://a.example", "Access-Control-Request-Method": "DELETE"}
    listed = in_process(recall=FakeRecall(), origins=("http://a.example",)).client
    allowed = listed.simulate_options("/v1/recall", headers=asked)
    assert "DELETE" in allowed.headers["access-control-allow-methods"].split(", ")
    others = in_process(recall=FakeRecall()).client.simulate_options("/v1/recall", headers=asked)
    assert "access-control-allow-methods" not in others.headers


def test_the_log_has_a_line_for_a_delete_and_none_for_a_get() -> None:
    server = in_process(recall=FakeRecall(), keys={"cli-1": "alpha"})
    server.client.simulate_get("/v1/recall", headers=KEY)
    server.client.simulate_delete("/v1/recall", headers=KEY)
    (line,) = [record.line() for record in server.told.access]
    assert line.startswith("DELETE /v1/recall 200 ") and line.endswith(" key=cli-1")


def test_get_health_and_replies_go_on_while_a_delete_waits_for_the_writer() -> None:
    recall = FakeRecall()
    recall.writer.clear()
    with on_socket(recall=recall) as server:
        deleting = server.connect()
        deleting.send("DELETE", "/v1/recall")
        assert recall.deleting.acquire(timeout=30)
        asking = server.connect()
        for path, status in (("/v1/recall", 200), ("/health", 200), ("/v1/models", 200)):
            asking.send("GET", path)
            assert asking.answer()[0] == status
        asking.send("GET", "/v1/recall")
        assert json.loads(asking.answer()[2]) == SHOWN
        asking.send("POST", "/v1/chat/completions", {"messages": MESSAGES})
        assert asking.answer()[0] == 200
        recall.writer.set()
        status, _, body = deleting.answer()
        assert (status, json.loads(body)["ids"]) == (200, EMPTY.ids)


def test_more_deletes_than_may_wait_are_503_and_leave_threads_for_the_rest() -> None:
    recall = FakeRecall()
    recall.writer.clear()
    with on_socket(recall=recall) as server:
        waiting: list[Connection] = []
        for _ in range(4):
            waiting.append(server.connect())
            waiting[-1].send("DELETE", "/v1/recall")
            assert recall.deleting.acquire(timeout=30)
        beyond = server.connect()
        beyond.send("DELETE", "/v1/recall")
        status, headers, body = beyond.answer()
        assert (status, headers["retry-after"]) == (503, "1")
        assert json.loads(body)["error"]["message"] == "4 requests to empty the record wait already."
        beyond.send("GET", "/health")
        assert beyond.answer()[0] == 200
        recall.writer.set()
        assert [client.answer()[0] for client in waiting] == [200] * 4
        beyond.send("DELETE", "/v1/recall")
        assert beyond.answer()[0] == 200
