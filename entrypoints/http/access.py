"""Who may ask: normal paths, the Host of a loopback server, API keys, and what browsers from other places may do.

Runs before routing, in this order, so that a refusal costs nothing and tells nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Any

import falcon

from tensorfold.entrypoints.http.error_handlers import shown
from tensorfold.entrypoints.http.errors import INVALID, ApiError
from tensorfold.entrypoints.http.keys import KeyRing, carries_key

OPEN_PATHS = frozenset({"/", "/health", "/v1/health"})
METRICS_PATHS = frozenset({"/metrics", "/v1/metrics"})
METHODS = "GET, HEAD, POST, DELETE, OPTIONS"
ALLOWED_HEADERS = "authorization, content-type, x-api-key"
_CONTAINER_HOSTS = ("host.docker.internal", "host.containers.internal")
_SLASHES = re.compile("/{2,}")


class Paths:
    """Makes `//v1//models/` the same path as `/v1/models`."""

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Rewrite the path before it is routed."""
        req.path = _SLASHES.sub("/", req.path).rstrip("/") or "/"


class HostCheck:
    """Keeps web pages from reaching an open loopback server under a name of their own.

    A page may point its own host name at 127.0.0.1; the Host header then tells. Addresses written as numbers cannot
    be pointed anywhere and are accepted, as are the names under which containers reach their host.
    """

    def __init__(self, host: str, keys: KeyRing) -> None:
        self._names = frozenset({"localhost", *_CONTAINER_HOSTS, host.lower()})
        self._checks = is_loopback(host) and not keys.required

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Refuse a foreign Host with 403."""
        header = req.get_header("Host")
        if not self._checks or not header:
            return
        name = host_name(header)
        if name in self._names or name.endswith(".localhost") or _is_address(name):
            return
        raise ApiError(
            403,
            f"The Host header names {shown(name)}, but a server on a loopback address without an API key answers only "
            "to localhost. Set --api-key to serve other names.",
            INVALID,
            None,
            "host_not_allowed",
        )


class CrossOrigin:
    """Answers OPTIONS, and lets browser pages of the listed origins read the answers. `*` lists every origin."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origin.rstrip("/").lower() for origin in origins)

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer OPTIONS on any path; no key is needed, as browsers send none."""
        if req.method != "OPTIONS":
            return
        # An empty 200 keeps the connection for the request that follows; a 204 would end it.
        resp.status = falcon.HTTP_200
        resp.set_header("Allow", METHODS)
        resp.complete = True
        if self._allowed(req) is None:
            return
        resp.set_header("Access-Control-Allow-Methods", METHODS)
        wanted = req.get_header("Access-Control-Request-Headers")
        resp.set_header("Access-Control-Allow-Headers", _header_names(wanted) or ALLOWED_HEADERS)
        resp.set_header("Access-Control-Max-Age", "600")

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: Any, succeeded: bool) -> None:
        """Name the origin in every answer, errors included, so that a page can read them."""
        origin = self._allowed(req)
        if self._origins:
            resp.append_header("Vary", "Origin")
        if origin is not None:
            resp.set_header("Access-Control-Allow-Origin", origin)
            resp.set_header("Access-Control-Expose-Headers", "retry-after, x-should-retry")

    def _allowed(self, req: falcon.Request) -> str | None:
        origin = req.get_header("Origin")
        if origin is None or not self._origins:
            return None
        if "*" in self._origins:
            return "*"
        return origin if origin.lower() in self._origins else None


class Authentication:
    """Asks for a key on every route but health, when the server requires one. The key's label goes to the context.

    `also_open` are paths that need none either.
    """

    def __init__(self, keys: KeyRing, also_open: Iterable[str] = ()) -> None:
        self._keys = keys
        self._open = OPEN_PATHS.union(also_open)

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Refuse with 401 what carries no valid key."""
        req.context.label = ""
        if not self._keys.required or req.path in self._open:
            return
        label = self._keys.label_for(req)
        if label is None:
            raise _no_key(carries_key(req))
        req.context.label = label


def is_loopback(host: str) -> bool:
    """Whether a bind address can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The host of a Host header, lower-case, without port and brackets."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.rpartition(":")[0] if header.count(":") == 1 else header


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _header_names(wanted: str | None) -> str:
    names = [name.strip() for name in (wanted or "").split(",")]
    return ", ".join(name for name in names if re.fullmatch(r"[A-Za-z0-9-]{1,64}", name))


def _no_key(sent: bool) -> ApiError:
    message = (
        "The API key is not one of this server's."
        if sent
        else "This server asks for an API key: send `Authorization: Bearer KEY` or `x-api-key: KEY`."
    )
    return ApiError(401, message, INVALID, None, "invalid_api_key", {"WWW-Authenticate": "Bearer"})
