"""Chunks that were chosen for models, a small file for each, read as hostile input.

A file that is missing, large or malformed is nothing; a disk that refuses is no error: the chunk is chosen anew then.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

_MOST_BYTES = 4096
_MOST_CHUNK = 1 << 20


class FolderChunkMemory:
    """Files `chunk-KEY.json` below one folder, which is made when the first is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: str) -> int | None:
        """The chunk of a key; None where there is none that can be trusted."""
        try:
            descriptor = os.open(self._path(key), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
            with open(descriptor, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
            stored = json.loads(data) if len(data) <= _MOST_BYTES else {}
            found, chunk = stored["key"], stored["chunk"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return chunk if found == key and type(chunk) is int and 0 < chunk <= _MOST_CHUNK else None

    def write(self, key: str, chunk: int) -> None:
        """Remember a chunk, whole or not at all."""
        if self.read(key) == chunk:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=".chunk-")
        except OSError:
            return
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "chunk": chunk}))
            os.replace(name, self._path(key))
        except OSError:
            Path(name).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"chunk-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
