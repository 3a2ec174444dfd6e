"""Reads a checkpoint's text files as the hostile input they are: regular files, bounded, UTF-8, JSON where promised.

Every refusal is one sentence of ours that names the file; no library's words reach it.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from tensorfold.application.checkpoint_links import stays_inside
from tensorfold.application.ports.checkpoints import RefusedError

MIB = 1 << 20


def read_bytes(path: Path, limit: int) -> bytes | None:
    """The whole file, or None when there is none. Raises RefusedError for all but a file of at most `limit` bytes."""
    try:
        if not stays_inside(str(path)):
            raise RefusedError(f"{path} is a link that leads outside its folder; put the file itself there.")
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RefusedError(f"{path} is not a regular file.")
            data = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError:
        raise RefusedError(f"{path} cannot be read; make it a regular, readable file.") from None
    if len(data) > limit:
        raise RefusedError(f"{path} is larger than {limit // MIB} MiB, the most that is read of this file.")
    return data


def _without_waiting(path: str, flags: int) -> int:
    """Open so that a pipe in a file's place cannot hold the start up."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_text(path: Path, limit: int) -> str | None:
    """The file as UTF-8 text, or None when there is none. Raises RefusedError."""
    data = read_bytes(path, limit)
    if data is None:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError(f"{path} is not UTF-8 text: byte {error.start} is out of place.") from None


def read_object(path: Path, limit: int) -> dict[str, Any] | None:
    """The file as a JSON object, or None when there is none. Raises RefusedError."""
    text = read_text(path, limit)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedError(f"{path} is not JSON; fetch the checkpoint again.") from None
    if not isinstance(value, dict):
        raise RefusedError(f"{path} does not hold a JSON object.")
    return value
