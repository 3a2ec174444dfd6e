"""Files of a benchmark on this machine: public and private prompts, results, changelogs.

What is read is hostile and bounded: plain files only, a limit in bytes, strict JSON. What is written stands whole or
not at all. The public prompts lie beside this module and are installed with it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from tensorfold.adapters.filesystem.checkpoint_json import parse_object
from tensorfold.adapters.filesystem.checkpoint_limits import CheckpointLimits, shown_path
from tensorfold.application.ports.benchmarks import Lines
from tensorfold.application.ports.checkpoints import RefusedError

MOST_PROMPT_BYTES = 8 << 20
MOST_LINES = 4096
MOST_RESULT_BYTES = 1 << 20
MOST_TEXT_BYTES = 16 << 20
_LIMITS = CheckpointLimits(json_bytes=MOST_PROMPT_BYTES, json_depth=8, json_values=50_000)
_PUBLIC = ("code", "chat", "agent", "repeat", "sampled")


class FolderBenchmarkFiles:
    """The BenchmarkFiles of this machine."""

    def public_prompts(self) -> Lines:
        """The files beside this module, in an order that never changes."""
        folder = resources.files(__package__) / "prompts"
        lines: list[tuple[str, Mapping[str, Any]]] = []
        for name in _PUBLIC:
            lines += _lines((folder / f"{name}.jsonl").read_bytes(), f"{name}.jsonl")
        return tuple(lines)

    def prompts(self, path: Path) -> Lines:
        """One JSON object a line. Raises RefusedError."""
        return tuple(_lines(_read(path, MOST_PROMPT_BYTES, "a file of prompts"), shown_path(path)))

    def result(self, path: Path) -> Mapping[str, Any]:
        """One JSON object. Raises RefusedError."""
        return parse_object(_read(path, MOST_RESULT_BYTES, "a results file"), shown_path(path), _LIMITS)

    def text(self, path: Path) -> str | None:
        """A text file, or None. Raises RefusedError."""
        if not path.exists():
            return None
        try:
            return _read(path, MOST_TEXT_BYTES, "a text file").decode("utf-8")
        except UnicodeDecodeError as error:
            raise RefusedError(f"{shown_path(path)} is not UTF-8 text (byte {error.start}).") from None

    def check_place(self, path: Path) -> None:
        """Whether a file can stand there. Raises RefusedError."""
        folder = path.parent
        if path.is_dir():
            raise RefusedError(f"{shown_path(path)} is a folder; name a file.")
        if not folder.is_dir():
            raise RefusedError(f"{shown_path(folder)} is no folder, so nothing can be written there.")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise RefusedError(f"{shown_path(folder)} may not be written by this user.")

    def write(self, path: Path, text: str) -> None:
        """One file, whole. Raises RefusedError."""
        try:
            replace_file(path, text.encode("utf-8"))
        except (OSError, ValueError) as broken:
            raise RefusedError(f"{shown_path(path)} cannot be written ({_reason(broken)}).") from None


def replace_file(path: Path, data: bytes) -> None:
    """Put `data` in the place of `path`, through a file beside it. Raises OSError."""
    # What a link points to is replaced, never the link.
    place = path.resolve()
    beside = place.with_name(f".{place.name[:64]}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if place.is_file():
            os.chmod(beside, stat.S_IMODE(place.stat().st_mode))
        os.replace(beside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _lines(data: bytes, name: str) -> list[tuple[str, Mapping[str, Any]]]:
    found = data.split(b"\n", MOST_LINES)
    if len(found) > MOST_LINES:
        raise RefusedError(f"{name} has more than {MOST_LINES} lines; write one prompt a line.")
    return [
        (place, parse_object(line, place, _LIMITS))
        for place, line in ((f"{name}, line {number}", line.strip()) for number, line in enumerate(found, start=1))
        if line
    ]


def _read(path: Path, most: int, what: str) -> bytes:
    """All of a plain file. Raises RefusedError."""
    name = shown_path(path)
    try:
        # A pipe in the file's place must not hold the reader.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise RefusedError(f"{name} is not a plain file.")
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(most + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise RefusedError(f"{name} is not there.") from None
    except (OSError, ValueError) as broken:
        raise RefusedError(f"{name} cannot be read ({_reason(broken)}).") from None
    if len(data) > most:
        raise RefusedError(f"{name} holds more than the {most} bytes of {what}.")
    return data


def _reason(broken: OSError | ValueError) -> str:
    return f"error {broken.errno}" if isinstance(broken, OSError) else "its name holds a null character"
