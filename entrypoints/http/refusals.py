"""Reads a body into a request model and turns the first thing wrong with it into one sentence of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from tensorfold.entrypoints.http.errors import UNSUPPORTED, ApiError, bad_request
from tensorfold.entrypoints.http.fields import REFUSED, UNSUPPORTED_VALUE

Request = TypeVar("Request", bound=BaseModel)


def read_request(model: type[Request], body: Mapping[str, Any]) -> Request:
    """The request, or ApiError (400) naming the field. Unknown fields are ignored."""
    try:
        return model.model_validate(body)
    except ValidationError as wrong:
        raise _first(wrong) from None


def field_path(*parts: int | str) -> str:
    """`("messages", 1, "content")` as `messages[1].content`."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _first(wrong: ValidationError) -> ApiError:
    error = wrong.errors(include_url=False, include_input=False)[0]
    context = error.get("ctx", {})
    path = field_path(*error["loc"], *context.get("at", ()))
    if error["type"] == UNSUPPORTED_VALUE:
        return bad_request(f"{path} {error['msg']}.", path, UNSUPPORTED)
    sentence = error["msg"] if error["type"] == REFUSED else "is not valid"
    return bad_request(f"{path} {sentence}.", path)
