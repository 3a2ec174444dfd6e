"""A hub of checkpoints on a loopback address: what a hub answers, and, told so, what a hostile or a tired one does.

It keeps who asked for what: `asked` counts the bytes of each file that were sent, `requests` every request. Large files
are sent by a second address, to which no token may come.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

BAD_TOKEN = "Invalid credentials in Authorization header"
Entries = list[dict[str, Any]]


def commit_of(text: str) -> str:
    """A commit's name made of any text."""
    return hashlib.sha1(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, as far as tests look at it."""

    method: str
    path: str
    range: str
    token: str
    status: int
    store: bool


@dataclass
class Mischief:
    """What the hub does wrong. Names are those of files.

    `cuts` end a file's answer after so many bytes, one after another; `status` are answers instead of a file or of the
    list ("" is the list), one after another, each with its headers; `sent` other bytes than the list says; `surplus`
    bytes behind a file's end without a length that says so. `entries` changes the list. `hold` blocks a file after
    so many bytes until its event is set.
    """

    cuts: dict[str, list[int]] = field(default_factory=dict)
    status: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    sent: dict[str, bytes] = field(default_factory=dict)
    surplus: dict[str, int] = field(default_factory=dict)
    ignores_ranges: bool = False
    entries: Callable[[Entries], Any] | None = None
    page: int = 1000
    next_page: str = ""
    commit: str | None = None
    location: str = ""
    hold: dict[str, tuple[int, threading.Event]] = field(default_factory=dict)
    list_body: bytes | None = None


@dataclass
class Repository:
    """Files by revision; `main` stands first. `gated` and `private` close it to tokens that are not in `let_in`."""

    revisions: dict[str, dict[str, bytes]]
    gated: bool = False
    private: bool = False
    let_in: tuple[str, ...] = ()

    def find(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Commit and files of a branch's name or a commit."""
        for name, files in self.revisions.items():
            commit = commit_of(name + str(sorted((n, len(d)) for n, d in files.items())))
            if revision in (name, commit):
                return commit, files
        return None

    def commit(self, revision: str = "main") -> str:
        """The commit that a branch points to."""
        found = self.find(revision)
        assert found is not None
        return found[0]


class HubServer:
    """The hub; `url` is its address. `tokens` are those it knows; another one is refused whatever it is for."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.mischief = Mischief()
        self.tokens: tuple[str, ...] = ()
        self.requests: list[Asked] = []
        self.asked: Counter[str] = Counter()
        self.lock = threading.Lock()
        hub = self

        class Front(_Handler):
            server_of, is_store = hub, False

        class Store(_Handler):
            server_of, is_store = hub, True

        self._servers = [_Server(("127.0.0.1", 0), handler) for handler in (Front, Store)]
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        self.url, self.store_url = (f"http://127.0.0.1:{server.server_address[1]}" for server in self._servers)

    def close(self) -> None:
        """Stop serving."""
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def add(self, name: str, files: Mapping[str, bytes], revision: str = "main", **settings: Any) -> Repository:
        """A repository, or one more revision of it."""
        repository = self.repositories.setdefault(name, Repository({}))
        repository.revisions[revision] = dict(files)
        for setting, value in settings.items():
            setattr(repository, setting, value)
        return repository

    def forget(self) -> None:
        """Count anew."""
        with self.lock:
            self.requests.clear()
            self.asked.clear()

    def weights_asked(self) -> int:
        """Bytes of weights that were sent."""
        with self.lock:
            return sum(count for name, count in self.asked.items() if name.endswith(".safetensors"))

    def files_asked(self) -> tuple[str, ...]:
        """Names of files of which bytes were sent."""
        with self.lock:
            return tuple(sorted(name for name, count in self.asked.items() if count))


@contextmanager
def hub_server() -> Iterator[HubServer]:
    """A hub that is closed in the end."""
    server = HubServer()
    try:
        yield server
    finally:
        server.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no fault of the hub's."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_of: HubServer
    is_store: bool

    def log_message(self, *words: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        hub, parts = self.server_of, urlsplit(self.path)
        path = unquote(parts.path)
        # A client that left in the middle of an answer is no fault of the hub's.
        with suppress(ConnectionError):
            if self.is_store:
                self._file(path.removeprefix("/store/").partition("/")[2], hub, direct=True)
            elif not self._refused(path, hub):
                self._route(path, parts.query, hub)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _route(self, path: str, query: str, hub: HubServer) -> None:
        for name, repository in hub.repositories.items():
            if path.startswith(f"/api/models/{name}/tree/"):
                return self._list(repository, path.rpartition("/")[2], query, hub)
            if path.startswith(f"/api/models/{name}/revision/"):
                return self._about(repository, name, path.rpartition("/")[2])
            if path.startswith(f"/{name}/resolve/"):
                revision, _, file = path[len(f"/{name}/resolve/") :].partition("/")
                return self._resolve(repository, name, revision, file, hub)
        return self._error(404, "RepoNotFound")

    def _refused(self, path: str, hub: HubServer) -> bool:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in hub.tokens:
            self._answer(401, b"", {"X-Error-Message": BAD_TOKEN})
            return True
        for name, repository in hub.repositories.items():
            if f"/{name}/" in path and token not in repository.let_in:
                if repository.private:
                    self._error(404 if token else 401, "RepoNotFound")
                    return True
                if repository.gated and "/resolve/" in path:
                    self._error(403 if token else 401, "GatedRepo")
                    return True
        return False

    def _about(self, repository: Repository, name: str, revision: str) -> None:
        found = repository.find(revision)
        if found is None:
            return self._error(404, "RevisionNotFound")
        about = {"id": name, "sha": found[0], "siblings": [{"rfilename": file} for file in found[1]]}
        return self._answer(200, json.dumps(about).encode(), {"Content-Type": "application/json"})

    def _list(self, repository: Repository, revision: str, query: str, hub: HubServer) -> None:
        if self._told("", hub):
            return
        found = repository.find(revision)
        if found is None:
            return self._error(404, "RevisionNotFound")
        mischief = hub.mischief
        entries: Any = [_entry(name, data) for name, data in sorted(found[1].items())]
        if mischief.entries is not None:
            entries = mischief.entries(entries)
        start = int(query.rpartition("cursor=")[2]) if "cursor=" in query else 0
        headers = {"Content-Type": "application/json"}
        if isinstance(entries, list) and len(entries) > start + mischief.page:
            more = mischief.next_page or f"{hub.url}{self.path.partition('?')[0]}"
            headers["Link"] = f'<{more}?recursive=true&cursor={start + mischief.page}>; rel="next"'
        page = entries[start : start + mischief.page] if isinstance(entries, list) else entries
        body = json.dumps(page).encode() if mischief.list_body is None else mischief.list_body
        return self._answer(200, body, headers)

    def _resolve(self, repository: Repository, name: str, revision: str, file: str, hub: HubServer) -> None:
        found = repository.find(revision)
        if found is None:
            return self._error(404, "RevisionNotFound")
        commit, files = found
        commit = commit if hub.mischief.commit is None else hub.mischief.commit
        if file not in files:
            return self._answer(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        if file.endswith(".safetensors"):
            digest = hashlib.sha256(files[file]).hexdigest()
            place = hub.mischief.location or f"{hub.store_url}/store/{digest}/{name}/{revision}/{file}"
            headers = {"X-Repo-Commit": commit, "X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(files[file]))}
            headers["Location"] = place
            return self._answer(302, b"", headers)
        return self._file(f"{name}/{revision}/{file}", hub, direct=False, commit=commit)

    def _file(self, path: str, hub: HubServer, *, direct: bool, commit: str = "") -> None:
        owner, repo, revision, file = path.split("/", 3)
        found = hub.repositories[f"{owner}/{repo}"].find(revision)
        assert found is not None
        if self._told(file, hub):
            return
        data = hub.mischief.sent.get(file, found[1][file])
        wanted = self.headers.get("Range", "")
        start = 0 if not wanted or hub.mischief.ignores_ranges else int(wanted.removeprefix("bytes=").rstrip("-"))
        headers = {"Accept-Ranges": "bytes", "ETag": f'"{_digest(file, data)}"'}
        if commit:
            headers["X-Repo-Commit"] = commit
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(file, data[start:], 206 if start else 200, headers, hub)

    def _send(self, file: str, data: bytes, status: int, headers: dict[str, str], hub: HubServer) -> None:
        surplus = hub.mischief.surplus.get(file, 0)
        self._begin(status, headers, None if surplus else len(data))
        if self.command == "HEAD":
            return
        data += b"x" * surplus
        with hub.lock:
            cuts = hub.mischief.cuts.get(file, [])
            cut = cuts.pop(0) if cuts else len(data)
        data, broken = data[:cut], cut < len(data) or surplus > 0
        held, gate = hub.mischief.hold.get(file, (len(data), None))
        self._part(file, data[:held], hub)
        if gate is not None:
            gate.wait()
        self._part(file, data[held:], hub)
        if broken:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(2)

    def _part(self, file: str, data: bytes, hub: HubServer) -> None:
        for at in range(0, len(data), 1 << 14):
            part = data[at : at + (1 << 14)]
            with hub.lock:
                hub.asked[file] += len(part)
            self.wfile.write(part)

    def _told(self, file: str, hub: HubServer) -> bool:
        """Answer as told instead of with a file or the list ("")."""
        with hub.lock:
            statuses = hub.mischief.status.get(file, [])
            told = statuses.pop(0) if statuses else None
        if told is not None:
            self._answer(told[0], b"<html>tired</html>", told[1])
        return told is not None

    def _error(self, status: int, code: str) -> None:
        self._answer(status, b"{}", {"X-Error-Code": code, "X-Error-Message": f"a library's words about {code}"})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._begin(status, headers, len(body))
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def _begin(self, status: int, headers: Mapping[str, str], length: int | None) -> None:
        hub = self.server_of
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with hub.lock:
            hub.requests.append(
                Asked(self.command, self.path, self.headers.get("Range", ""), token, status, self.is_store)
            )
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()


def _digest(file: str, data: bytes) -> str:
    if file.endswith(".safetensors"):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


def _entry(name: str, data: bytes) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": _digest(f"{name}.text", data)}
    if name.endswith(".safetensors"):
        entry["lfs"] = {"oid": _digest(name, data), "size": len(data), "pointerSize": 134}
    return entry
