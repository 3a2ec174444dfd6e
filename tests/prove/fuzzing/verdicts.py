"""What is wrong with an answer: its status, the form of its error, and words that are not ours.

Knows the product's errors by their form alone; what marks foreign text is listed here.
"""

from __future__ import annotations

import re
from typing import Any

from tests.prove.fuzzing.answers import Answer

FOREIGN = re.compile(
    r"Traceback|File \"|line \d+(, | column)|site-packages|\.py\b|<class|object at 0x|[a-z](Error|Exception|Warning)\b"
    r"|pydantic|falcon|waitress|jinja|numpy|wsgi|Input should|validation error|Expecting|Extra data|codec can't|errno"
    r"|NoneType|takes \d+ positional|not subscriptable|has no attribute|invalid literal|unhashable|object is not",
    re.IGNORECASE,
)
VAGUE = re.compile(r" is not valid\.$")
CODES = (
    None, "context_length_exceeded", "unsupported_parameter", "request_too_large", "invalid_api_key",
    "host_not_allowed", "model_not_found", "overloaded", "recall_read_only", "recall_delete_failed",
)  # fmt: skip
STATUSES = frozenset({200, 400, 401, 403, 404, 405, 413, 431})
MOST_LETTERS = 600
_PARAM = re.compile(r"[A-Za-z_]+([.\[][A-Za-z0-9_\]]+)*")


def wrong(answer: Answer) -> str | None:
    """The first thing wrong with any answer of this server, whatever was asked."""
    if answer.status not in STATUSES:
        return f"the status {answer.status}: {answer.body[:200]!r}"
    if any(name in answer.headers for name in ("server", "x-powered-by")):
        return f"headers that tell what serves: {answer.headers}"
    error = answer.error
    if answer.status == 200:
        return None if error is None else f"an error under 200: {error}"
    if answer.body == b"" and not answer.cut and answer.headers.get("content-length") != "0":
        # The answer to a HEAD.
        return None
    if answer.cut:
        return None
    return f"no error object: {answer.body[:200]!r}" if error is None else wrong_error(error)


def wrong_error(error: Any) -> str | None:
    """The first thing wrong with an error object."""
    if not isinstance(error, dict) or sorted(error) != ["code", "message", "param", "type"]:
        return f"an error out of form: {error!r:.300}"
    message, param = error["message"], error["param"]
    if error["type"] not in ("invalid_request_error", "server_error") or error["code"] not in CODES:
        return f"an unknown type or code: {error}"
    if not isinstance(message, str) or not message.endswith(".") or not 10 < len(message) <= MOST_LETTERS:
        return f"no sentence: {error!r:.900}"
    if not message.isprintable() or FOREIGN.search(message):
        return f"words that are not ours: {error}"
    if VAGUE.search(message):
        return f"a refusal that does not say what is wrong: {error}"
    if param is not None and not (isinstance(param, str) and len(param) < 120 and _PARAM.fullmatch(param)):
        return f"a field that is none: {error}"
    return None
