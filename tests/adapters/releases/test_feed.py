"""The release feed against a site that tells the truth, lies, is slow, is huge, redirects, or is not there."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tensorfold.adapters.releases import fetching
from tensorfold.adapters.releases.feed import MOST_ANSWER, SiteReleaseFeed
from tensorfold.application.ports.services import Release
from tensorfold.application.releases import read_address
from tests.application.test_releases import HOSTILE_TAGS
from tests.fakes.release_site import API, LATEST, Behaviour, ReleaseSite, body, dripping, raw, release_site, silent

PATIENCE_S = 10.0


@pytest.fixture
def site() -> Iterator[ReleaseSite]:
    with release_site("v0.2.0") as running:
        yield running


def feed_of(site: ReleaseSite) -> SiteReleaseFeed:
    address = read_address(site.page)
    assert address is not None
    return SiteReleaseFeed(address)


def test_the_latest_release_is_a_tag_and_notes_at_our_own_address(site: ReleaseSite) -> None:
    site.announce("v0.2.0", html_url="https://evil.example", body="x" * 1000, draft=False, prerelease=False)
    assert feed_of(site).latest(PATIENCE_S) == Release("v0.2.0", f"{site.page}/releases/tag/v0.2.0")
    assert (site.requests, site.connections) == ([LATEST], 1)


def test_the_changelog_is_that_of_the_tag(site: ReleaseSite) -> None:
    site.publish("v0.2.0", "## 0.2.0\n- déjà\n".encode())
    site.publish("v0.3.0", b"\xff\xfe")
    assert feed_of(site).changelog("v0.2.0", PATIENCE_S) == "## 0.2.0\n- déjà\n"
    assert feed_of(site).changelog("v0.3.0", PATIENCE_S) is feed_of(site).changelog("v0.4.0", PATIENCE_S) is None


def test_a_tag_of_no_form_is_never_asked_about(site: ReleaseSite) -> None:
    assert feed_of(site).changelog("v0.2.0&ref=main", PATIENCE_S) is None
    assert site.connections == 0


@pytest.mark.parametrize("tag", [tag for tag in HOSTILE_TAGS if not isinstance(tag, bytes)], ids=repr)
def test_a_hostile_tag_is_no_release(site: ReleaseSite, tag: object) -> None:
    site.announce(tag)
    assert feed_of(site).latest(PATIENCE_S) is None


@pytest.mark.parametrize("mark", ["draft", "prerelease"])
def test_a_draft_or_a_trial_is_no_release(site: ReleaseSite, mark: str) -> None:
    site.announce("v0.2.0", **{mark: True})
    assert feed_of(site).latest(PATIENCE_S) is None


GOOD = json.dumps({"tag_name": "v0.2.0"}).encode()
ANSWERS: dict[str, Behaviour] = {
    "empty": body(b""),
    "no JSON": body(b"<html>v0.2.0</html>"),
    "a list": body(b'["v0.2.0"]'),
    "null": body(b"null"),
    "no tag": body(b'{"name": "v0.2.0"}'),
    "not UTF-8": body(b'{"tag_name": "v0.2.0\xff"}'),
    "deep": body(b"[" * 100_000),
    "a number of many digits": body(b'{"tag_name": ' + b"9" * 100_000 + b"}"),
    "too large": body(GOOD + b" " * MOST_ANSWER),
    "404": body(GOOD, "404 Not Found"),
    "403": body(GOOD, "403 Forbidden"),
    "500": body(GOOD, "500 Internal Server Error"),
    "204": body(GOOD, "204 No Content"),
    "cut": body(GOOD, length=len(GOOD) + 1),
    "a cut chunk": raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + GOOD),
    "packed": body(GOOD[::-1], headers="Content-Encoding: gzip\r\n"),
    "no HTTP": raw(b"SSH-2.0-OpenSSH\r\n\r\n"),
    "nothing": raw(b""),
    "a header without end": raw(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000),
    "headers without end": raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000),
    "a negative length": raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n"),
    "a redirect to a file": body(b"", "302 Found", headers="Location: file:///etc/hostname\r\n"),
    "a redirect without end": body(b"", "302 Found", headers=f"Location: {LATEST}\r\n"),
    "a redirect to nowhere": body(b"", "302 Found", headers="Location: https://127.0.0.1:1/\r\n"),
    "a redirect of no form": body(b"", "302 Found", headers="Location: http://[\r\n"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer_is_no_release(site: ReleaseSite, name: str) -> None:
    site.answers[LATEST] = ANSWERS[name]
    assert feed_of(site).latest(PATIENCE_S) is None
    assert site.connections <= 12


def test_a_redirect_on_the_same_host_is_followed(site: ReleaseSite) -> None:
    site.answers[f"{API}/moved"] = site.answers[LATEST]
    site.answers[LATEST] = body(b"", "301 Moved Permanently", headers=f"Location: {API}/moved\r\n")
    assert feed_of(site).latest(PATIENCE_S) == Release("v0.2.0", f"{site.page}/releases/tag/v0.2.0")


def test_a_redirect_to_another_host_in_the_clear_is_not_followed(site: ReleaseSite) -> None:
    with release_site("v9.9.9") as other:
        target = f"Location: http://127.0.0.1:{other.port}{LATEST}\r\n"
        site.answers[LATEST] = body(b"", "302 Found", headers=target)
        assert feed_of(site).latest(PATIENCE_S) is None
        assert other.connections == 0


SLOW: dict[str, Behaviour] = {
    "silence": silent,
    "a status without end": dripping(b"HTTP/1.1", b" "),
    "headers without end": dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", 0.1),
    "a body without end": dripping(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
    "chunks without end": dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.slow
def test_a_slow_answer_holds_neither_the_caller_nor_a_thread(site: ReleaseSite, name: str) -> None:
    site.answers[LATEST] = SLOW[name]
    began = time.monotonic()
    assert feed_of(site).latest(0.3) is None
    assert 0.3 <= time.monotonic() - began < PATIENCE_S
    deadline = time.monotonic() + PATIENCE_S
    while any(thread.name == "fetch" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the fetch still runs"
        time.sleep(0.01)


def test_a_site_that_is_gone_is_no_release() -> None:
    with release_site("v0.2.0") as site:
        feed = feed_of(site)
    assert (feed.latest(PATIENCE_S), feed.changelog("v0.2.0", PATIENCE_S)) == (None, None)


def test_a_site_that_speaks_no_tls_is_no_release(site: ReleaseSite) -> None:
    address = read_address(site.page.replace("http:", "https:"))
    assert address is not None
    site.greet = b"no TLS"
    assert SiteReleaseFeed(address).latest(PATIENCE_S) is None
    assert site.connections == 1


def test_a_proxy_of_the_environment_is_asked_for_a_tunnel_and_one_that_gives_none_is_no_release(
    site: ReleaseSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{site.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    asked = threading.Event()

    def tunnel(connection: socket.socket, closing: threading.Event) -> None:
        asked.set()
        closing.wait()

    site.answers["releases.example:443"] = tunnel
    address = read_address("https://releases.example/a/b")
    assert address is not None
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(SiteReleaseFeed(address).latest, PATIENCE_S)
        assert asked.wait(PATIENCE_S)
        site.close()
        assert answer.result(PATIENCE_S) is None
    assert site.requests == ["releases.example:443"]


def test_a_connection_made_after_the_end_is_shut_at_once(site: ReleaseSite) -> None:
    work = fetching._Fetch(f"http://127.0.0.1:{site.port}{LATEST}", "*/*", 1000, PATIENCE_S)
    work.end()
    work.run()
    assert work.body is None
