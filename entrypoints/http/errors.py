"""Error answers in OpenAI's shape: always the four keys message, type, param and code.

A message is one of ours; no library's text reaches a client. Statuses that clients retry (409, 429, 5xx) are used only
where trying again can help, or carry `x-should-retry: false`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tensorfold.application.errors import OverloadedError, RequestError

INVALID = "invalid_request_error"
SERVER = "server_error"
CONTEXT_EXCEEDED = "context_length_exceeded"
OVERLOADED = "overloaded"
UNSUPPORTED = "unsupported_parameter"
NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}


class ApiError(Exception):
    """An answer that is an error: its HTTP status, the four keys and extra headers."""

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self) -> bytes:
        """The error object as JSON."""
        return error_json(self.message, self.kind, self.param, self.code)


def error_json(message: str, kind: str, param: str | None = None, code: str | None = None) -> bytes:
    """`{"error": {...}}` with all four keys."""
    error = {"message": message, "type": kind, "param": param, "code": code}
    return json.dumps({"error": error}, separators=(",", ":")).encode()


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400 that names the field, when there is one."""
    return ApiError(400, message, INVALID, param, code)


def overloaded(message: str, retry_after: int) -> ApiError:
    """A 503 with the seconds after which trying again makes sense."""
    return ApiError(503, message, SERVER, None, OVERLOADED, {"Retry-After": str(retry_after)})


def fault(message: str = "The server failed on this request; its log says why.") -> ApiError:
    """A 500 that clients must not retry: the same request would fail again."""
    return ApiError(500, message, SERVER, None, None, NO_RETRY)


def refused(refusal: RequestError | OverloadedError) -> ApiError:
    """The answer to a refusal of the application."""
    if isinstance(refusal, OverloadedError):
        return overloaded(refusal.message, refusal.retry_after)
    return bad_request(refusal.message, refusal.param, refusal.code)


def ended_in_error(message: str, code: str | None) -> ApiError:
    """The answer to a reply that ended in an error after it was started."""
    if code == CONTEXT_EXCEEDED:
        return bad_request(message, None, code)
    if code == OVERLOADED:
        return overloaded(message, 1)
    return ApiError(500, message, SERVER, None, code, NO_RETRY)
