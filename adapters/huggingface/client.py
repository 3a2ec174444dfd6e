"""Asks a hub over HTTP: small files, lists of files, and parts of large ones. Every answer is hostile.

Nothing is read past the bytes that were asked for, no redirect leads from a safe connection to an open one, and the
token goes to the hub's own address alone. Raises what `faults` names; an exception of the library's never leaves.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urljoin, urlsplit

from tensorfold.adapters.huggingface.faults import (
    AbsentError,
    BadTokenError,
    BrokenOffError,
    UnreachableError,
    broken_off,
    of_status,
)
from tensorfold.adapters.huggingface.settings import HubSettings
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.fields import clipped

_MOST_HOPS = 6
_LIST_BYTES = 32 << 20
_MOST_PAGES = 100
_QUICK_TRIES = 2
_REDIRECTS = (301, 302, 303, 307, 308)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A whole small file, and the commit that the hub says it is of (empty when it does not say)."""

    data: bytes
    commit: str


@dataclass(frozen=True, slots=True)
class Body:
    """A file's bytes from `start` on; `size` is the whole file's, None when the hub does not say."""

    start: int
    size: int | None
    chunks: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class _Answer:
    response: Any
    headers: Mapping[str, str]


class HubClient:
    """One hub. `pause` waits so many seconds between tries; safe from several threads."""

    def __init__(self, settings: HubSettings, pause: Callable[[float], object], log: Callable[[str], None]) -> None:
        self._settings = settings
        self._pause = pause
        self._log = log
        self._lock = threading.Lock()
        self._token: str | None = None
        self._has_token = False
        self.token_refused = False

    def small(self, repo: str, revision: str, name: str, most: int) -> SmallFile | None:
        """A file of at most `most` bytes, or None when the revision has none of that name."""

        def ask() -> SmallFile | None:
            try:
                with self._asked(_resolve(repo, revision, name), _what(repo, revision), {}) as answer:
                    data = self._bounded(answer.response, most, f"{name} of {repo}")
                    return SmallFile(data, answer.headers.get("x-repo-commit", ""))
            except AbsentError:
                return None

        return self._tried(ask)

    def listed(self, repo: str, commit: str) -> list[Any]:
        """The entries of a commit's whole tree, as parsed and unchecked values."""
        found: list[Any] = []
        path = f"/api/models/{repo}/tree/{commit}?recursive=true&expand=false"
        for _ in range(_MOST_PAGES):
            entries, following = self._tried(partial(self._page, repo, commit, path))
            found += entries
            if following is None:
                return found
            path = following
        raise RefusedError(f"The hub's list of the files of {repo} has more than {_MOST_PAGES} pages.")

    @contextmanager
    def part(self, repo: str, commit: str, name: str, start: int) -> Iterator[Body]:
        """A file from byte `start` on, once: a broken connection is a BrokenOffError."""
        asked = {"Range": f"bytes={start}-"} if start else {}
        try:
            with self._asked(_resolve(repo, commit, name), _what(repo, commit), asked) as answer:
                yield self._body(answer.response, start, f"{name} of {repo}")
        except AbsentError:
            raise RefusedError(f"{name} of {repo} is listed by the hub and cannot be fetched from it.") from None

    def _page(self, repo: str, commit: str, path: str) -> tuple[list[Any], str | None]:
        where = f"The hub's list of the files of {repo}"
        with self._asked(path, _what(repo, commit), {}) as answer:
            data = self._bounded(answer.response, _LIST_BYTES, where)
            following = _next_page(answer.response.headers.get("link", ""), path, where)
        try:
            entries = json.loads(data)
        except (ValueError, RecursionError):
            raise RefusedError(f"{where} is not JSON; check HF_ENDPOINT.") from None
        if not isinstance(entries, list):
            raise RefusedError(f"{where} is not a JSON array; check HF_ENDPOINT.")
        return entries, following

    def _tried(self, ask: Callable[[], T]) -> T:
        """Ask until an answer comes, a few times; a hub without one is unreachable."""
        for tries, pause in enumerate(self._settings.waits, start=1):
            try:
                return ask()
            except BrokenOffError as fault:
                # A hub that answers at all is given more patience than one that cannot be reached.
                if tries >= (len(self._settings.waits) if fault.heard else _QUICK_TRIES):
                    raise self.unreachable(fault) from None
                self._pause(pause if fault.wait is None else fault.wait)
        raise AssertionError("there is at least one try")

    def unreachable(self, fault: BrokenOffError) -> UnreachableError:
        """The refusal of a hub that stays silent."""
        return UnreachableError(
            f"The hub at {_shown(self._settings.endpoint)} cannot be used now: {fault.reason}; check the network or "
            "HF_ENDPOINT and run the same command again: what is here stays."
        )

    @contextmanager
    def _asked(self, path: str, what: str, headers: Mapping[str, str]) -> Iterator[_Answer]:
        """A good answer to one question; without the token, when the hub does not take it."""
        with ExitStack() as stack:
            try:
                answer = stack.enter_context(self._answered(path, what, headers, self._key()))
            except BadTokenError:
                with self._lock:
                    self._token, self.token_refused = None, True
                answer = stack.enter_context(self._answered(path, what, headers, None))
            yield answer

    @contextmanager
    def _answered(self, path: str, what: str, headers: Mapping[str, str], key: str | None) -> Iterator[_Answer]:
        url, own = self._settings.endpoint + path, True
        first: dict[str, str] = {}
        for _ in range(_MOST_HOPS):
            with self._sent(url, {**headers, **({"Authorization": f"Bearer {key}"} if key and own else {})}) as sent:
                first = {**dict(sent.headers.items()), **first}
                if sent.status_code not in _REDIRECTS:
                    _require_good(sent, what, own=own, key=key, refused=self.token_refused)
                    yield _Answer(sent, first)
                    return
                url, own = self._followed(url, sent.headers.get("location", ""))
        raise RefusedError(f"{what}: the hub sends the download from place to place without end; check HF_ENDPOINT.")

    def _followed(self, url: str, location: str) -> tuple[str, bool]:
        """Where a redirect leads, and whether that is still the hub. Raises RefusedError for one to an open place."""
        try:
            target = urljoin(url, location)
            parts, hub = urlsplit(target), urlsplit(self._settings.endpoint)
            own = (parts.scheme, parts.hostname, parts.port) == (hub.scheme, hub.hostname, hub.port)
        except ValueError:
            raise RefusedError("The hub redirects to an address that cannot be read; check HF_ENDPOINT.") from None
        if not location or parts.scheme not in (hub.scheme, "https"):
            raise RefusedError("The hub redirects to a place without a safe connection; check HF_ENDPOINT.")
        return target, own

    @contextmanager
    def _sent(self, url: str, headers: Mapping[str, str]) -> Iterator[Any]:
        plain = {"User-Agent": self._settings.agent, "Accept-Encoding": "identity", **headers}
        with ExitStack() as stack:
            try:
                response = stack.enter_context(
                    self._settings.session().stream(
                        "GET", url, headers=plain, follow_redirects=False, timeout=self._settings.timeout
                    )
                )
            except Exception as error:
                raise self._translated(error) from None
            yield response

    def _chunks(self, response: Any) -> Iterator[bytes]:
        """The body in parts as they come: what waits to fill a larger part is lost when the connection breaks."""
        try:
            yield from response.iter_bytes()
        except Exception as error:
            raise self._translated(error) from None

    def _translated(self, error: Exception) -> BrokenOffError:
        self._log(f"hub: {type(error).__name__}: {error}")
        return broken_off(error)

    def _body(self, response: Any, start: int, where: str) -> Body:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise RefusedError(f"{where} comes in a coding that was not asked for; check HF_ENDPOINT.")
        chunks = self._chunks(response)
        if response.status_code == 206:
            begin, whole = _range(response.headers.get("content-range", ""))
            if begin != start:
                raise BrokenOffError("it sent another part than was asked for", heard=True)
            return Body(start, whole, chunks)
        length = response.headers.get("content-length", "")
        return Body(0, int(length) if length.isdecimal() and len(length) < 16 else None, chunks)

    def _bounded(self, response: Any, most: int, where: str) -> bytes:
        parts: list[bytes] = []
        size = 0
        for chunk in self._chunks(response):
            size += len(chunk)
            if size > most:
                raise RefusedError(f"{where} is larger than the {most:,} bytes that are read of it.")
            parts.append(chunk)
        return b"".join(parts)

    def _key(self) -> str | None:
        with self._lock:
            if not self._has_token:
                self._token, self._has_token = self._settings.token(), True
            return self._token


def _require_good(response: Any, what: str, *, own: bool, key: str | None, refused: bool) -> None:
    if response.status_code in (200, 206):
        return
    if not own:
        # The store behind the hub: its address is good for a while only, so the hub is asked for a new one.
        raise BrokenOffError(f"its store answered {response.status_code}", heard=True)
    raise of_status(
        response.status_code, dict(response.headers.items()), what, keyed=key is not None, token_refused=refused
    )


def _range(text: str) -> tuple[int, int | None]:
    """First byte and whole size of a Content-Range header, (-1, None) for what is none."""
    unit, _, rest = text.partition(" ")
    span, _, whole = rest.partition("/")
    begin = span.partition("-")[0]
    if unit != "bytes" or not begin.isdecimal() or len(begin) > 15:
        return -1, None
    return int(begin), int(whole) if whole.isdecimal() and len(whole) < 16 else None


def _next_page(link: str, path: str, where: str) -> str | None:
    """The path of the following page of a list; only its path counts, since the hub itself is asked for it."""
    for part in link.split(","):
        target, _, attributes = part.partition(";")
        if 'rel="next"' in attributes.replace(" ", ""):
            parts = urlsplit(target.strip().strip("<>"))
            if not f"{parts.path}?".endswith(path.partition("?")[0] + "?"):
                raise RefusedError(f"{where} goes on at another place; check HF_ENDPOINT.")
            return f"{path.partition('?')[0]}?{parts.query}"
    return None


def _shown(endpoint: str) -> str:
    """An address in a sentence, without a name and password that may stand in it."""
    scheme, found, rest = endpoint.partition("://")
    host, slash, path = rest.partition("/")
    return clipped(f"{scheme}{found}{host.rpartition('@')[2]}{slash}{path}", 200)


def _resolve(repo: str, revision: str, name: str) -> str:
    return f"/{repo}/resolve/{quote(revision, safe='')}/{quote(name, safe='')}"


def _what(repo: str, revision: str) -> str:
    return repo if revision == "main" or len(revision) == 40 else f"{repo}@{revision}"
