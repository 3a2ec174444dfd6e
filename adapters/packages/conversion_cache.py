"""Keeps converted checkpoints on disk: complete or absent, whatever stops the process that writes one.

A checkpoint is built in a temporary folder beside its place and renamed into it. `conversion.json` says what it was
made from and what its files must be; a folder whose files do not match is built anew. Writers exclude each other by a
lock file; where the disk knows no locks, the rename alone decides and the later writer takes the earlier one's folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

STAMP = "conversion.json"
_LOCK = ".lock"
_PREFIX = ".building-"
_WHOLE_BYTES = 16 << 20
_SAMPLES = 64
_SAMPLE_BYTES = 1 << 16
_UNLOCKABLE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class ConversionCache:
    """Converted checkpoints below `root`, which is made when first written."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def ready(self, name: str, made_from: Mapping[str, Any]) -> Path | None:
        """The folder `name` when it is whole and was made from `made_from`."""
        folder = self._root / name
        try:
            with (folder / STAMP).open("rb") as file:
                stamp = json.loads(file.read(1 << 16))
            return folder if stamp == _stamp(folder, made_from) else None
        except (OSError, ValueError, RecursionError):
            return None

    @contextlib.contextmanager
    def writing(self, on_wait: Callable[[], None]) -> Iterator[Path]:
        """A temporary folder for the one writer, removed at the end; `on_wait` is called when there is another."""
        self._root.mkdir(parents=True, exist_ok=True)
        with self._locked(on_wait) as is_alone:
            if is_alone:
                self._sweep()
            with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=self._root, ignore_cleanup_errors=True) as made:
                yield Path(made)

    def publish(self, built: Path, name: str, made_from: Mapping[str, Any]) -> Path:
        """Stamp `built`, a folder inside the temporary one, and rename it to `name`."""
        (built / STAMP).write_text(json.dumps(_stamp(built, made_from), indent=2) + "\n", encoding="utf-8")
        folder = self._root / name
        try:
            os.rename(built, folder)
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
            if self.ready(name, made_from) is None:
                os.rename(folder, built.with_name("replaced"))
                os.rename(built, folder)
        return folder

    @contextlib.contextmanager
    def _locked(self, on_wait: Callable[[], None]) -> Iterator[bool]:
        descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            yield _lock(descriptor, on_wait)
        finally:
            # Closing drops the lock; the file stays, since removing it could part two waiting writers.
            os.close(descriptor)

    def _sweep(self) -> None:
        """Remove what a killed writer left; only the lock's holder may."""
        for left in self._root.glob(f"{_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)


def _lock(descriptor: int, on_wait: Callable[[], None]) -> bool:
    """Take the lock, waiting for it when needed; False where the disk knows no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _UNLOCKABLE:
            raise
        return False
    return True


def _stamp(folder: Path, made_from: Mapping[str, Any]) -> dict[str, Any]:
    # Hidden files are a desktop's own marks, not part of the checkpoint.
    files = sorted(path for path in folder.iterdir() if path.name != STAMP and not path.name.startswith("."))
    return {**made_from, "files": {path.name: _evidence(path) for path in files}}


def _evidence(path: Path) -> list[Any]:
    """A file's size and the SHA-256 of its bytes; of a file over 16 MiB, of 64 evenly spread blocks of 64 KiB."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            return [size, hashlib.file_digest(file, "sha256").hexdigest()]
        digest = hashlib.sha256()
        for sample in range(_SAMPLES):
            file.seek((size - _SAMPLE_BYTES) * sample // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return [size, digest.hexdigest()]
