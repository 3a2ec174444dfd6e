"""Bodies of requests in a file, where the environment asked for one: opened before anything else, and warned about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorfold.application.request_log import RequestLog
from tensorfold.entrypoints.container import Container

VARIABLE = "TENSORFOLD_REQUEST_LOG"


def taken_by(
    path: Path | None, container: Container, warn: Callable[[str], None]
) -> Callable[[Mapping[str, Any]], None]:
    """What is told of the body of every request that began a reply. Raises RefusedError."""
    if path is None:
        return lambda body: None
    log = RequestLog(container.request_file(path, VARIABLE), warn)
    log.open()
    warn(f"{VARIABLE} is set: the bodies of requests, prompts included, are appended to {path}")
    return log.taken
