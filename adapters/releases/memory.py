"""What runs remember about releases: two small files in the cache folder, replaced whole, read as hostile input.

`update-check.json` holds the last answer (`tag`, `checked` in Unix seconds), `version-seen` the newest version that
served. A file that is missing, large or malformed is nothing; a disk that refuses is no error.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import tempfile
from pathlib import Path

from tensorfold.application.releases import read_tag, read_version

CHECK, SEEN = "update-check.json", "version-seen"
_MOST_BYTES = 4096


class FolderUpdateMemory:
    """Files below one folder, which is made when the first is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def checked(self) -> tuple[str, float] | None:
        """The last answer; None when there is none that can be trusted."""
        try:
            kept = json.loads(self._read(CHECK))
            tag, when = kept["tag"], kept["checked"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if read_tag(tag) is None or not isinstance(when, int | float) or not math.isfinite(when):
            return None
        return tag, float(when)

    def remember_check(self, tag: str, when: float) -> None:
        """Keep an answer."""
        self._write(CHECK, json.dumps({"tag": tag, "checked": when}))

    def forget_check(self) -> None:
        """Remove the answer."""
        with contextlib.suppress(OSError):
            (self._folder / CHECK).unlink(missing_ok=True)

    def seen(self) -> str | None:
        """The newest version that served; None when there is none that can be trusted."""
        try:
            text = self._read(SEEN).decode("ascii").strip()
        except (OSError, ValueError):
            return None
        return text if read_version(text) is not None else None

    def remember_seen(self, version: str) -> bool:
        """Keep a version."""
        return self._write(SEEN, f"{version}\n")

    def _read(self, name: str) -> bytes:
        """A regular file's bytes. Raises OSError and ValueError."""
        descriptor = os.open(self._folder / name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ValueError("not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(_MOST_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(data) > _MOST_BYTES:
            raise ValueError("too large")
        return data

    def _write(self, name: str, text: str) -> bool:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, made = tempfile.mkstemp(dir=self._folder, prefix=f".{name}-")
        except OSError:
            return False
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(text)
            os.replace(made, self._folder / name)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(made)
            return False
        return True
