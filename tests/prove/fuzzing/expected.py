"""What a whole request without a body of its own must come to, by its method and path alone."""

from __future__ import annotations

import re

from tests.prove.fuzzing.good import CHAT, TEXT
from tests.prove.fuzzing.requests import Request

LOOK = frozenset({"GET", "HEAD"})
POST = frozenset({"POST"})
ROUTES = {
    "/": LOOK,
    "/health": LOOK,
    "/models": LOOK,
    "/metrics": LOOK,
    "/recall": LOOK | {"DELETE"},
    CHAT.removeprefix("/v1"): POST,
    TEXT.removeprefix("/v1"): POST,
}
OPEN = frozenset({"/", "/health", "/v1/health"})
LOCAL = frozenset({"", "localhost", "127.0.0.1:80"})
ANY = frozenset({200, 400, 401, 403, 404, 405, 413})
REPLY = frozenset({200, 400, 413})
_SLASHES = re.compile("/{2,}")


def statuses(request: Request, key: str | None) -> frozenset[int]:
    """The statuses that may answer; `key` is what a closed server asks for."""
    path = _SLASHES.sub("/", request.target.partition("?")[0].partition("#")[0]).rstrip("/") or "/"
    if request.method == "OPTIONS":
        return frozenset({200})
    host = request.headers.get("host", "")
    if key is None and host == "evil.example":
        return frozenset({403})
    if host not in LOCAL and host != "evil.example":
        return ANY
    if key is not None and path not in OPEN and request.headers.get("authorization") != f"Bearer {key}":
        return frozenset({401})
    route = path if path == "/" or not path.startswith("/v1/") else path.removeprefix("/v1")
    if "%" in path:
        return frozenset({200, 400, 404, 405})
    if route.startswith("/models/"):
        return (frozenset({200}) if route == "/models/hash" else frozenset({404})) if request.method in LOOK else _NOT
    if route not in ROUTES:
        return frozenset({404})
    if request.method not in ROUTES[route]:
        return _NOT
    return REPLY if request.method == "POST" else frozenset({200})


_NOT = frozenset({400, 405})
"""A method that the route does not take; one that is no method at all is a bad request."""
