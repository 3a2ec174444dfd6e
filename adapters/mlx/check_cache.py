"""Keeps what a load check found, so that the next start on the same engine need not look again.

One small JSON file for each key; the key names everything the result depends on, this adapter's own source files
included. Times are not kept: those of a machine that was busy then would steer drafts now. A file that is missing,
malformed or of another key counts as absent; writing it is never allowed to fail a start.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tensorfold.adapters.mlx.row_check import Allowed

_MOST_BYTES = 1 << 20


class CheckCache:
    """Findings below one folder, created when the first is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: Mapping[str, Any]) -> Allowed | None:
        """The finding of a key, None when there is none that can be trusted."""
        try:
            path = self._path(key)
            if path.stat().st_size > _MOST_BYTES:
                return None
            stored = json.loads(path.read_text(encoding="utf-8"))
            return _allowed(stored["allowed"]) if stored["key"] == json.loads(_text(key)) else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def write(self, key: Mapping[str, Any], allowed: Allowed) -> None:
        """Keep a finding; a disk that refuses is ignored."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".check-")
        except OSError:
            return
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(_text({"key": key, "allowed": asdict(allowed)}))
            os.replace(name, path)
        except OSError:
            Path(name).unlink(missing_ok=True)

    def _path(self, key: Mapping[str, Any]) -> Path:
        return self._folder / f"{hashlib.sha256(_text(key).encode()).hexdigest()}.json"


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _allowed(stored: Mapping[str, Any]) -> Allowed:
    """Rebuild a finding. Raises ValueError, KeyError or TypeError for anything but its own shape."""
    return Allowed(
        chain=_count(stored["chain"], 1),
        tree=_count(stored["tree"], 1),
        shares=_flag(stored["shares"]),
        slice=_count(stored["slice"], 0),
        draft_context=_count(stored["draft_context"], 0),
        notes=[_line(note) for note in _list(stored["notes"])],
    )


def _count(value: object, least: int) -> int:
    if type(value) is not int or value < least:
        raise ValueError("not a count")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("not a flag")
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _line(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("not a line")
    return value


def sources_digest() -> str:
    """SHA-256 over the source files that decide a row's bits: this adapter's and the kernels' it calls."""
    here = Path(__file__).resolve().parent
    digest = hashlib.sha256()
    kernels = here.parent.parent / "kernels"
    for root in (here, kernels / "cpu", kernels / "metal"):
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
