"""Bodies of requests as lines of JSON, for whoever asked for them: they hold prompts.

What cannot be written is said once and costs no request anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tensorfold.application.faults import named
from tensorfold.application.listeners import harmless
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.request_file import RequestFile

LEFT_OUT = "left out"


class RequestLog:
    """Appends to one file. Safe to call from several threads."""

    def __init__(self, file: RequestFile, log: Callable[[str], None]) -> None:
        self._file = file
        self._log = harmless(log)
        self._told: str | None = None

    def open(self) -> None:
        """Have a file that can be written. Raises RefusedError."""
        self._file.append(b"")

    def taken(self, body: Mapping[str, Any]) -> None:
        """Write the body of a request that was taken, without its images. Raises nothing."""
        try:
            line = json.dumps(without_images(body), ensure_ascii=False, separators=(",", ":"))
            self._file.append(line.encode("utf-8", "replace") + b"\n")
        except RefusedError as refusal:
            self._tell(refusal.message)
        except Exception as fault:
            self._tell(f"{self._file.name}: {named(fault)}.")
        else:
            self._told = None

    def _tell(self, why: str) -> None:
        """Say it once, until a line was written again or something else is wrong."""
        if why != self._told:
            self._told = why
            self._log(f"requests are not logged: {why}")


def without_images(value: Any) -> Any:
    """A JSON value whose image parts keep their type alone."""
    if isinstance(value, list):
        return [without_images(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    kind = value.get("type")
    if isinstance(kind, str) and "image" in kind:
        return {key: kind if key == "type" else LEFT_OUT for key in value}
    return {key: without_images(each) for key, each in value.items()}
