"""Paths, methods and the answers that are not replies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tensorfold.application.errors import OverloadedError, RequestError
from tensorfold.application.health import Health
from tests.entrypoints.http.fakes import FakeChat
from tests.entrypoints.http.wire import MESSAGES, VERSION, error_of, in_process


@pytest.mark.parametrize(
    "path", ["/v1/models", "/models", "/v1/models/", "//v1/models", "/v1//models//", "/v1/models?x=1"]
)
def test_models_list_the_served_name_first_then_its_aliases(path: str) -> None:
    listed = in_process().client.simulate_get(path)
    assert listed.status_code == 200
    assert listed.json["object"] == "list"
    assert [entry["id"] for entry in listed.json["data"]] == ["org/tiny", "tiny"]
    for entry in listed.json["data"]:
        assert entry["object"] == "model"
        assert entry["owned_by"] == "tensorfold"
        assert entry["max_model_len"] == 8192
        assert isinstance(entry["created"], int)


@pytest.mark.parametrize("path", ["/v1/models/org/tiny", "/v1/models/org%2Ftiny", "/models/tiny", "/v1/models/tiny/"])
def test_one_model_is_found_by_its_id_slashes_included(path: str) -> None:
    client = in_process().client
    assert client.simulate_get(path).json["id"] in ("org/tiny", "tiny")
    head = client.simulate_head(path)
    assert (head.status_code, head.text) == (200, "")


def test_a_model_that_is_not_served_is_404_with_the_names_that_are() -> None:
    result = in_process().client.simulate_get("/v1/models/ORG/TINY")
    assert result.status_code == 404
    error = error_of(result)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert error["message"] == "The model ORG/TINY is not served here; ask for org/tiny or tiny."


@pytest.mark.parametrize(
    "path", ["/nothing", "/v1", "/v1/v1/models", "/V1/MODELS", "/v1/chat", "/v1/embeddings", "/\x7f"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_an_unknown_path_is_404_in_json(path: str, method: str) -> None:
    result = in_process().client.simulate_request(method, path, body=b"{}" if method == "POST" else None)
    assert result.status_code == 404
    assert result.headers["content-type"] == "application/json"
    assert error_of(result)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/responses", "The Responses API (/v1/responses) is not served by this version; /v1/chat/completions"),
        ("/responses/resp_1", "The Responses API (/v1/responses) is not served by this version"),
        ("/v1/messages/count_tokens", "The Messages API (/v1/messages) is not served by this version"),
        ("/v1/embeddings", "The route for embeddings (/v1/embeddings) is not served by this version"),
        ("/v1/messagesx", "Nothing is served at /v1/messagesx; the base URL of this server ends in /v1"),
        ("/chat/completion", "Nothing is served at /chat/completion; the base URL of this server ends in /v1"),
    ],
)
def test_a_client_of_another_api_is_told_which_one_is_served(path: str, words: str) -> None:
    assert error_of(in_process().client.simulate_post(path, body=b"{}"))["message"].startswith(words)


def test_a_path_of_any_length_is_named_in_a_bounded_line() -> None:
    result = in_process().client.simulate_get("/" + "x" * 100_000)
    assert result.status_code == 404
    assert len(error_of(result)["message"]) < 400


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/models", "GET"),
        ("PATCH", "/v1/completions", "POST"),
        ("DELETE", "/health", "GET"),
        ("POST", "/v1/models/tiny", "GET"),
        ("HEAD", "/v1/completions", "POST"),
    ],
)
def test_a_wrong_method_is_405_with_allow(method: str, path: str, allowed: str) -> None:
    result = in_process().client.simulate_request(method, path)
    assert result.status_code == 405
    assert allowed in result.headers["allow"]
    if method != "HEAD":
        assert method in error_of(result)["message"]


@pytest.mark.filterwarnings("ignore:Unknown REQUEST_METHOD")
@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "PROPFIND", "WEBSOCKET"])
def test_methods_of_other_kinds_get_a_json_error(method: str) -> None:
    result = in_process().client.simulate_request(method, "/v1/models")
    assert result.status_code in (400, 405)
    assert error_of(result)["message"]


@pytest.mark.parametrize("path", ["/health", "/v1/health", "/", "/health/"])
def test_health_says_how_the_server_is(path: str) -> None:
    client = in_process().client
    result = client.simulate_get(path)
    assert result.status_code == 200
    assert result.json == {
        "status": "ok",
        "model": "org/tiny",
        "model_ids": ["org/tiny", "tiny"],
        "version": VERSION,
        "backend": "fake",
        "context_length": 8192,
        "requests_running": 2,
        "streams": {"decoding": 1, "max": 4},
        "client_disconnections_total": 0,
    }
    head = client.simulate_head(path)
    assert (head.status_code, head.text) == (200, "")


@pytest.mark.parametrize("status", ["stuck", "failed", "draining", "loading"])
def test_health_is_red_when_the_engine_is_not_well(status: str) -> None:
    server = in_process()
    server.health.report_now = Health(status, False, {})  # type: ignore[arg-type]
    result = server.client.simulate_get("/health")
    assert (result.status_code, result.json["status"]) == (503, status)


def test_health_is_draining_as_soon_as_the_server_ends() -> None:
    server = in_process()
    server.gate.drain(60.0)
    result = server.client.simulate_get("/health")
    assert (result.status_code, result.json["status"]) == (503, "draining")


def test_with_keys_health_says_its_status_alone() -> None:
    result = in_process(keys={"a": "k"}).client.simulate_get("/health")
    assert result.json == {"status": "ok"}


def test_while_the_model_loads_everything_answers_and_nothing_is_served() -> None:
    server = in_process(ready=False)
    health = server.client.simulate_get("/health")
    assert (health.status_code, health.json) == (503, {"status": "loading", "version": VERSION})
    for result in (server.ask(), server.ask(stream=True), server.client.simulate_get("/v1/models")):
        assert result.status_code == 503
        assert int(result.headers["retry-after"]) > 0
        error = error_of(result)
        assert (error["type"], error["code"]) == ("server_error", "overloaded")
        assert "loading" in error["message"]
    assert server.gate.inside == 0


@pytest.mark.parametrize("stream", [False, True])
def test_refusals_of_the_application_are_real_statuses_also_for_streams(stream: bool) -> None:
    refusal = RequestError("messages[0] is too odd.", param="messages[0]", code="odd")
    server = in_process(FakeChat(refusal=refusal))
    result = server.ask(stream=stream)
    assert result.status_code == 400
    error = error_of(result)
    assert (error["message"], error["param"], error["code"]) == ("messages[0] is too odd.", "messages[0]", "odd")
    assert server.gate.inside == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_503_with_retry_after(stream: bool) -> None:
    server = in_process(FakeChat(refusal=OverloadedError("The queue is full: 64 requests wait.", 3)))
    result = server.ask(stream=stream)
    assert result.status_code == 503
    assert result.headers["retry-after"] == "3"
    error = error_of(result)
    assert (error["type"], error["code"]) == ("server_error", "overloaded")


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_beyond_the_context_is_refused_in_the_words_clients_look_for(stream: bool) -> None:
    server = in_process(FakeChat(context=20))
    messages = [{"role": "user", "content": "lorem " * 10}]
    result = server.post({"messages": messages, "max_tokens": 4, "stream": stream})
    assert result.status_code == 400
    error = error_of(result)
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"
    assert "This model's maximum context length is 20 tokens" in error["message"]
    assert "60 in the messages" in error["message"]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_reply_limit_beyond_the_context_is_refused_with_the_field_to_lower(field: str) -> None:
    result = in_process(FakeChat(context=20)).post({"messages": [{"role": "user", "content": "lorem"}], field: 1 << 20})
    error = error_of(result)
    assert (result.status_code, error["param"], error["code"]) == (400, "messages", "context_length_exceeded")
    assert f"lower `{field}`" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_fault_is_a_500_without_its_text_that_clients_do_not_retry(stream: bool) -> None:
    server = in_process(FakeChat(refusal=KeyError("secret detail")))
    result = server.ask(stream=stream)
    assert result.status_code == 500
    assert result.headers["x-should-retry"] == "false"
    assert "secret" not in result.text
    assert error_of(result)["type"] == "server_error"
    assert [type(broken) for _, broken in server.told.faults] == [KeyError]
    assert server.gate.inside == 0
    assert server.client.simulate_get("/v1/models").status_code == 200


def test_the_log_has_one_line_per_request_and_no_word_of_a_prompt() -> None:
    server = in_process(keys={"team": "secret"})
    headers = {"x-api-key": "secret"}
    server.post({"messages": [{"role": "user", "content": "WORD"}]}, headers=headers)
    server.post({"messages": [{"role": "user", "content": "WORD"}], "stream": True}, headers=headers)
    server.post({"messages": MESSAGES})
    server.client.simulate_get("/v1/models", headers=headers)
    server.client.simulate_get("/v1/nothing\n", headers=headers)
    lines = [record.line() for record in server.told.access]
    assert [record.status for record in server.told.access] == [200, 200, 401, 404]
    for line in lines[:2]:
        assert "key=team" in line
        assert "prompt=4 cached=1 tokens=4" in line
        assert "finish=stop" in line
        assert "drafts=3/4" in line
        assert "ttft=0.750s prefill=0.500s" in line
    for line, reply in zip(lines, server.chat.replies, strict=False):
        assert f" id=chatcmpl-{reply.id} " in line
    assert "\n" not in "".join(lines)
    assert "WORD" not in "".join(lines)
    assert "secret" not in "".join(lines)


def test_bodies_of_requests_that_began_a_reply_are_told_of_but_for_those_in_the_background() -> None:
    told: list[Mapping[str, Any]] = []
    server = in_process(taken=told.append)
    title = {"messages": [{"role": "system", "content": "Make a title."}, *MESSAGES]}
    bodies: list[dict[str, Any]] = [
        {"messages": MESSAGES, "stream": True, "unknown": 1},
        {"messages": MESSAGES, "priority": "foreground"},
        title | {"priority": "foreground"},
    ]
    for body in bodies:
        assert server.post(body).status_code == 200
    assert server.post({"prompt": "a", "priority": "background"}, "/v1/completions").status_code == 200
    assert server.post(title).status_code == 200
    assert server.post({"messages": MESSAGES, "priority": "background"}).status_code == 200
    assert server.post({"messages": MESSAGES, "max_tokens": 10**6}).status_code == 400
    assert server.post({"messages": []}).status_code == 400
    assert told == bodies


def test_a_listener_of_bodies_that_fails_costs_no_reply() -> None:
    def broken(body: Mapping[str, Any]) -> None:
        raise RuntimeError

    server = in_process(taken=broken)
    assert server.ask().status_code == 200
    assert server.gate.inside == 0


def test_the_models_route_needs_no_json_of_the_client() -> None:
    listed = in_process().client.simulate_get("/v1/models", body=b"{nonsense")
    assert json.loads(listed.text)["object"] == "list"
