"""What a client library is told and what it says, as lines of JSON on standard input and output.

Runs in the libraries' own environment, so nothing but the standard library and the library at hand is imported. A call
holds `op` (`chat`, `stream`, `leave`), `base`, `key`, `model`, `prompt`, `fields` (of OpenAI's request) and `tools`; an
answer holds a reply, or what the library raised.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

Call = Mapping[str, Any]
Reply = dict[str, Any]
Operation = Callable[[Call], Reply]

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def reply(text: str, finish: str | None, usage: tuple[int, int] | None, pieces: int | None = None) -> Reply:
    """A reply as the library showed it; `usage` is prompt and completion tokens."""
    return {"text": text, "finish": finish, "usage": usage, "pieces": pieces}


def failed(kind: str, status: int | None, message: str) -> Reply:
    """What the library raised: its name, the HTTP status it knows, its text."""
    return {"failed": {"kind": kind, "status": status, "message": message}}


def run(operations: Mapping[str, Operation]) -> None:
    """Answer calls until the input ends. Whatever a library prints goes to standard error."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        call = json.loads(line)
        try:
            said = operations[call["op"]](call)
        except Exception as broken:
            status = getattr(broken, "status_code", None)
            said = failed(type(broken).__name__, status if isinstance(status, int) else None, str(broken))
        print(json.dumps(said), file=answers, flush=True)
