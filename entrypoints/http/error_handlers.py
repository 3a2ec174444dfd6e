"""Turns whatever a route raises into an error answer. A fault's text goes to the log, never to the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import falcon

from tensorfold.application.errors import OverloadedError, RequestError
from tensorfold.entrypoints.http.errors import INVALID, ApiError, bad_request, fault, refused

FaultLog = Callable[[str, BaseException], None]
SHOWN_PATH = 200
NOT_SERVED = {
    "responses": "The Responses API (/v1/responses)",
    "messages": "The Messages API (/v1/messages)",
    "embeddings": "The route for embeddings (/v1/embeddings)",
}
"""Routes that clients of other APIs ask for, by their first part, and their names."""


def answer(resp: falcon.Response, error: ApiError) -> None:
    """Write an error into a response, replacing what was there."""
    resp.status = falcon.code_to_http_status(error.status)
    resp.content_type = falcon.MEDIA_JSON
    resp.stream = None
    resp.data = error.body()
    for name, value in error.headers.items():
        resp.set_header(name, value)


def install(app: falcon.App[Any, Any], log_fault: FaultLog) -> None:
    """Replace Falcon's own error answers."""

    def on_api_error(req: falcon.Request, resp: falcon.Response, error: Any, params: Any) -> None:
        answer(resp, error)

    def on_refusal(req: falcon.Request, resp: falcon.Response, error: Any, params: Any) -> None:
        answer(resp, refused(error))

    def on_http_error(req: falcon.Request, resp: falcon.Response, error: Any, params: Any) -> None:
        answer(resp, _http_error(req, error))

    def on_fault(req: falcon.Request, resp: falcon.Response, error: Any, params: Any) -> None:
        log_fault(f"{req.method} {shown(req.path)}", error)
        answer(resp, fault())

    app.add_error_handler(Exception, on_fault)
    app.add_error_handler(falcon.HTTPError, on_http_error)
    app.add_error_handler(RequestError, on_refusal)
    app.add_error_handler(OverloadedError, on_refusal)
    app.add_error_handler(ApiError, on_api_error)


def shown(path: str) -> str:
    """A path fit for a line of text: printable ASCII, bounded."""
    text = path.encode("unicode_escape").decode("ascii")
    return text if len(text) <= SHOWN_PATH else text[:SHOWN_PATH] + "..."


def _nowhere(path: str) -> str:
    """What to say of a path without a route; clients of an API that is not served show it to their user."""
    asked = path.removeprefix("/v1").strip("/").partition("/")[0]
    if asked in NOT_SERVED:
        return f"{NOT_SERVED[asked]} is not served by this version; /v1/chat/completions and /v1/completions are."
    return f"Nothing is served at {shown(path)}; the base URL of this server ends in /v1, with the routes below it."


def _http_error(req: falcon.Request, error: falcon.HTTPError) -> ApiError:
    status = error.status_code
    path = shown(req.path)
    if status == 404:
        return ApiError(404, _nowhere(req.path), INVALID)
    if status == 405:
        headers = dict(error.headers or {})
        allowed = headers.get("Allow", "")
        return ApiError(405, f"{path} takes {allowed or 'no method'}, not {req.method}.", INVALID, None, None, headers)
    if status < 500:
        return bad_request("The request is not one this server understands.")
    return fault()
