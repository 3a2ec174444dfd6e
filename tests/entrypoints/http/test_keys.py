"""Keys that come and go while a server runs, and proof by enumeration that no route forgets to ask for one."""

from __future__ import annotations

import hmac
import threading
from pathlib import Path

import pytest

from tensorfold.application.settings import HttpSettings
from tensorfold.entrypoints.http.access import OPEN_PATHS
from tensorfold.entrypoints.http.keys import KeyRing
from tensorfold.entrypoints.http.server import exposure_warning
from tests.entrypoints.http.doors import INFERENCE, closed, left_open, routes
from tests.entrypoints.http.wire import MESSAGES, in_process

KEYS = {"cli-1": "Alpha-1"}


@pytest.mark.slow
def test_every_route_but_health_is_closed_to_everything_that_is_no_key() -> None:
    server = in_process(keys=KEYS)
    app = server.client.app
    assert routes(app) >= INFERENCE
    assert {template for template in routes(app) if not closed(template)} == OPEN_PATHS
    tried, found = left_open(server.client, "Alpha-1")
    assert found == [] and tried > 900
    assert server.chat.orders == []


def test_a_ring_that_requires_a_key_is_closed_while_it_has_none() -> None:
    ring = KeyRing(required=True)
    assert (len(ring), bool(ring), ring.required) == (0, True, True)
    assert ring.label_of(b"") is ring.label_of(b"x") is None
    ring.rotate([("a", "one")])
    assert (len(ring), ring.label_of(b"one")) == (1, "a")
    ring.rotate([])
    assert (len(ring), bool(ring), ring.label_of(b"one")) == (0, True, None)
    assert not KeyRing() and len(KeyRing()) == 0


def test_an_open_server_cannot_be_closed_half_way() -> None:
    with pytest.raises(ValueError, match="open"):
        KeyRing().rotate([("a", "one")])


def test_keys_that_last_stay_valid_whatever_comes_and_goes() -> None:
    ring = KeyRing([("cli-1", "last")])
    for keys in ([("a", "one"), ("b", "two")], [("c", "last")], []):
        ring.rotate(keys)
        assert ring.label_of(b"last") == "cli-1" and len(ring) == 1 + len(keys)
        assert (ring.label_of(b"two") is not None) == (("b", "two") in keys)


def test_each_time_every_digest_is_compared_and_all_have_one_length(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = KeyRing([("a", "x"), ("b", "y" * 500)])
    ring.rotate([("c", "z"), ("d", "x")])
    compared: list[tuple[int, int]] = []
    constant = hmac.compare_digest

    def compare(known: bytes, given: bytes) -> bool:
        compared.append((len(known), len(given)))
        return constant(known, given)

    monkeypatch.setattr("tensorfold.entrypoints.http.keys.hmac.compare_digest", compare)
    for candidate in (b"x", b"y" * 500, b"z", b"", b"wrong" * 1000):
        compared.clear()
        ring.label_of(candidate)
        assert compared == [(32, 32)] * 4


def test_a_key_that_every_rotation_keeps_is_never_missed_and_one_that_none_has_never_found() -> None:
    ring, ending = KeyRing(required=True), threading.Event()
    ring.rotate([("a", "kept")])
    wrong: list[bytes] = []

    def ask() -> None:
        while not ending.is_set():
            wrong.extend(key for key, label in ((b"kept", "a"), (b"never", None)) if ring.label_of(key) != label)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(2000):
        others = [(f"b{number}", f"key {number} {other}") for other in range(number % 5)]
        ring.rotate([*others, ("a", "kept")] if number % 2 else [("a", "kept"), *others])
    ending.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_health_tells_no_details_where_a_key_is_required_though_none_is_valid() -> None:
    server = in_process(ring=KeyRing(required=True))
    assert server.client.simulate_get("/health").json == {"status": "ok"}
    assert server.post({"messages": MESSAGES}).status_code == 401


def test_a_loopback_server_that_requires_a_key_answers_to_other_names() -> None:
    server = in_process(ring=KeyRing(required=True))
    assert server.client.simulate_get("/health", headers={"Host": "llm.example"}).status_code == 200


def test_a_key_file_counts_as_keys_and_an_open_server_for_every_web_page_is_warned_about() -> None:
    assert exposure_warning(HttpSettings(host="0.0.0.0", key_file=Path("keys"))) is None
    assert exposure_warning(HttpSettings(origins=("http://localhost:3000",))) is None
    assert "--cors is *" in (exposure_warning(HttpSettings(origins=("*",))) or "")
    assert exposure_warning(HttpSettings(origins=("*",), keys=(("a", "k"),))) is None
