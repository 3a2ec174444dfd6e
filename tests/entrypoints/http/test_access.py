"""Keys, the Host of a loopback server, and browsers from other origins."""

from __future__ import annotations

import pytest

from tensorfold.application.settings import HttpSettings
from tensorfold.entrypoints.http.access import host_name, is_loopback
from tensorfold.entrypoints.http.keys import KeyRing
from tensorfold.entrypoints.http.server import exposure_warning
from tests.entrypoints.http.wire import MESSAGES, error_of, in_process

KEYS = {"cli-1": "alpha", "env-1": "beta"}


@pytest.mark.parametrize(
    ("headers", "label"),
    [
        ({"Authorization": "Bearer alpha"}, "cli-1"),
        ({"Authorization": "bearer  beta "}, "env-1"),
        ({"x-api-key": "beta"}, "env-1"),
        ({"x-api-key": "alpha", "Authorization": "Bearer wrong"}, "cli-1"),
    ],
)
def test_a_key_opens_in_either_header_and_its_label_is_logged(headers: dict[str, str], label: str) -> None:
    server = in_process(keys=KEYS)
    assert server.post({"messages": MESSAGES}, headers=headers).status_code == 200
    assert server.told.access[0].label == label


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic alpha"},
        {"Authorization": "alpha"},
        {"x-api-key": ""},
        {"x-api-key": "alph"},
        {"x-api-key": "alphaa"},
        {"x-api-key": "alpha, beta"},
        {"Authorization": "Bearer \xe9\xff"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("POST", "/completions"),
        ("GET", "/v1/models"),
        ("GET", "/models/tiny"),
        ("GET", "/v1/unknown"),
        ("PUT", "/v1/models"),
    ],
)
def test_without_a_valid_key_every_route_but_health_is_401(headers: dict[str, str], method: str, path: str) -> None:
    server = in_process(keys=KEYS)
    result = server.client.simulate_request(method, path, headers=headers, body=b"{" if method != "GET" else None)
    assert result.status_code == 401
    assert result.headers["www-authenticate"] == "Bearer"
    error = error_of(result)
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
    assert not server.chat.orders


@pytest.mark.parametrize("path", ["/", "/health", "/v1/health", "//health/"])
def test_health_needs_no_key(path: str) -> None:
    assert in_process(keys=KEYS).client.simulate_get(path).status_code == 200


def test_an_open_server_ignores_whatever_key_is_sent() -> None:
    server = in_process()
    assert server.post({"messages": MESSAGES}, headers={"Authorization": "Bearer nonsense"}).status_code == 200
    assert server.told.access[0].label == ""


def test_a_key_ring_holds_digests_and_the_first_label_of_a_key_counts() -> None:
    ring = KeyRing([("a", "one"), ("b", "two"), ("c", "one"), ("d", "drei-é")])
    assert ring.label_of(b"one") == "a"
    assert ring.label_of(b"two") == "b"
    assert ring.label_of("drei-é".encode()) == "d"
    assert ring.label_of(b"") is None
    assert "one" not in repr(vars(ring))
    assert len(ring) == 4


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1:8080",
        "[::1]:8080",
        "[::1]",
        "10.0.0.7:80",
        "app.localhost:3000",
        "host.docker.internal:8080",
    ],
)
def test_a_loopback_server_answers_to_its_own_names_and_to_addresses(host: str) -> None:
    assert in_process().client.simulate_get("/v1/models", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.nip.example"]
)
@pytest.mark.parametrize("path", ["/v1/models", "/health"])
def test_a_loopback_server_refuses_other_names(host: str, path: str) -> None:
    result = in_process().client.simulate_get(path, headers={"Host": host})
    assert result.status_code == 403
    assert host.partition(":")[0] in error_of(result)["message"]


def test_other_names_are_fine_with_a_key_or_beyond_loopback() -> None:
    named = {"Host": "llm.example", "x-api-key": "alpha"}
    assert in_process(keys=KEYS).client.simulate_get("/v1/models", headers=named).status_code == 200
    assert in_process(host="0.0.0.0").client.simulate_get("/v1/models", headers=named).status_code == 200


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_loopback_addresses_are_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_the_host_of_a_header_loses_port_brackets_and_case() -> None:
    assert [host_name(h) for h in ("A.b:1", "[::1]:9", "::1", "x", " Y ")] == ["a.b", "::1", "::1", "x", "y"]


def test_a_server_others_can_reach_without_a_key_is_warned_about() -> None:
    assert exposure_warning(HttpSettings(host="127.0.0.1")) is None
    assert exposure_warning(HttpSettings(host="0.0.0.0", keys=(("a", "k"),))) is None
    warning = exposure_warning(HttpSettings(host="0.0.0.0"))
    assert warning is not None
    assert "--api-key" in warning


PREFLIGHT = {
    "Origin": "http://localhost:3000",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/unknown", "/"])
@pytest.mark.parametrize("origins", [("http://localhost:3000",), ("*",), ("http://LOCALHOST:3000/", "x")])
def test_a_preflight_of_a_listed_origin_needs_no_key(path: str, origins: tuple[str, ...]) -> None:
    server = in_process(keys=KEYS, origins=origins)
    result = server.client.simulate_options(path, headers=PREFLIGHT)
    assert result.status_code == 200
    assert result.headers["access-control-allow-origin"] in ("http://localhost:3000", "*")
    assert "POST" in result.headers["access-control-allow-methods"]
    assert result.headers["access-control-allow-headers"] == "authorization, content-type, x-stainless-os"
    denied = server.client.simulate_post("/v1/chat/completions", body=b"{}", headers={"Origin": PREFLIGHT["Origin"]})
    assert denied.status_code == 401
    assert "access-control-allow-origin" in denied.headers


@pytest.mark.parametrize("origins", [(), ("http://other.example",)])
def test_other_origins_get_no_permission(origins: tuple[str, ...]) -> None:
    server = in_process(origins=origins)
    preflight = server.client.simulate_options("/v1/chat/completions", headers=PREFLIGHT)
    assert preflight.status_code == 200
    assert preflight.headers["allow"]
    answered = server.post({"messages": MESSAGES}, headers={"Origin": PREFLIGHT["Origin"]})
    for result in (preflight, answered):
        assert not [name for name in result.headers if name.lower().startswith("access-control-")]


def test_a_streamed_answer_can_be_read_by_a_listed_origin() -> None:
    server = in_process(origins=("http://a.example",))
    headers = {"Origin": "http://a.example"}
    result = server.post({"messages": MESSAGES, "stream": True}, headers=headers)
    assert result.headers["access-control-allow-origin"] == "http://a.example"
    assert "Origin" in result.headers["vary"]


def test_a_preflight_without_wanted_headers_or_with_odd_ones_is_answered() -> None:
    server = in_process(origins=("*",))
    plain = server.client.simulate_options("/v1/models", headers={"Origin": "http://a"})
    assert "authorization" in plain.headers["access-control-allow-headers"]
    odd = {"Origin": "http://a", "Access-Control-Request-Headers": "x y, ok-name, ;"}
    assert (
        server.client.simulate_options("/v1/models", headers=odd).headers["access-control-allow-headers"] == "ok-name"
    )
