"""Every way in: each route that the application has, under each method, with each thing that is no key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import falcon
import falcon.inspect
import falcon.testing

from tensorfold.entrypoints.http.access import OPEN_PATHS

INFERENCE = frozenset(
    {
        "/v1/chat/completions", "/chat/completions", "/v1/completions", "/completions", "/v1/models", "/models",
        "/v1/models/{model_id:path}", "/models/{model_id:path}",
    }
)  # fmt: skip
"""Routes that must be among those found, so that an enumeration which finds none proves nothing."""
WRONG: Mapping[str, str] = {"Authorization": "Bearer wrong"}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH")


def routes(app: falcon.App[Any, Any]) -> frozenset[str]:
    """The templates of every route."""
    return frozenset(route.path for route in falcon.inspect.inspect_routes(app))


def no_keys(key: str) -> Iterator[Mapping[str, str]]:
    """Headers that carry no valid key, most of them close to the valid `key`."""
    yield {}
    for wrong in ("", "wrong", key[:-1], f"{key}x", key.upper(), f"{key},{key}", f" {key} {key}", "*", "null", "none"):
        yield {"Authorization": f"Bearer {wrong}"}
        yield {"x-api-key": wrong}
    for other in (key, f"Basic {key}", f"Bearer{key}", f"Token {key}", f"Bearer: {key}"):
        yield {"Authorization": other}
    yield {"api-key": key, "x-api-token": key, "Cookie": f"key={key}", "X-Forwarded-For": "127.0.0.1"}
    yield {"X-Original-URL": "/health", "X-Rewrite-URL": "/health", "X-HTTP-Method-Override": "OPTIONS"}


def spellings(template: str) -> Iterator[str]:
    """Paths that lead to a route, or could be taken for one that needs no key."""
    path = re.sub(r"\{[^}]*\}", "x", template)
    yield path
    if path != "/":
        yield f"{path}/"
        yield f"/{path}"
        yield f"{path}?health"
        yield f"/health/..{path}"
        yield f"{path}/../health"
        yield f"{path}%2F..%2F..%2Fhealth"
        yield path.upper()


def closed(template: str) -> bool:
    """Whether a route is one that must ask for a key."""
    return template not in OPEN_PATHS


def ways(app: falcon.App[Any, Any]) -> Iterator[tuple[str, str]]:
    """Method and path of every way to a route that must be closed."""
    for template in sorted(routes(app)):
        if closed(template):
            for path in spellings(template):
                for method in METHODS:
                    yield method, path


def left_open(client: falcon.testing.TestClient, key: str) -> tuple[int, list[str]]:
    """How often a server whose only key is `key` was tried without it, and every try that was not answered by 401."""
    tried, found = 0, []
    tries = [(method, path, headers) for method, path in ways(client.app) for headers in ({}, WRONG)]
    tries += [("POST", template.split("/{")[0], headers) for template in sorted(INFERENCE) for headers in no_keys(key)]
    for method, path, headers in tries:
        tried += 1
        status = client.simulate_request(method, path, headers=dict(headers), body=b"{}").status_code
        if status != 401:
            found.append(f"{method} {path} with {dict(headers)}: {status}")
    return tried, found
