"""Opens the files of one checkpoint folder, and nothing outside it.

A file must be regular and lie inside the folder after links are followed. The one exception is a hub cache, where
`snapshots/REVISION/FILE` links to `blobs/DIGEST` of the same repository. Never creates, changes or executes a file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import TracebackType

from tensorfold.adapters.filesystem.checkpoint_limits import shown_path
from tensorfold.application.checkpoint_links import allowed_roots
from tensorfold.application.ports.checkpoints import RefusedError

_ABSENT = (errno.ENOENT, errno.ENOTDIR)


class OpenFile:
    """A regular file open for reading at any offset; `label` names it in sentences, `size` is in bytes."""

    def __init__(self, descriptor: int, name: str, label: str, size: int) -> None:
        self._descriptor = descriptor
        self.name = name
        self.label = label
        self.size = size

    def __enter__(self) -> OpenFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`. Raises RefusedError when the file ends before them."""
        parts: list[bytes] = []
        wanted = length
        while wanted:
            try:
                part = os.pread(self._descriptor, wanted, offset)
            except OSError as error:
                raise RefusedError(f"{self.label} cannot be read ({_reason(error)}).") from None
            if not part:
                raise RefusedError(
                    f"{self.label} ended at byte {offset} while it was being read, at its opening it had "
                    f"{self.size} bytes; wait until nothing writes to it and start again."
                )
            parts.append(part)
            offset += len(part)
            wanted -= len(part)
        return b"".join(parts)


class CheckpointFolder:
    """The folder a user named. Raises RefusedError when it is not a folder that can be read."""

    def __init__(self, folder: Path) -> None:
        try:
            root = os.path.realpath(folder, strict=True)
            is_folder = stat.S_ISDIR(os.stat(root).st_mode)
        except OSError as error:
            raise RefusedError(
                f"{shown_path(folder)} cannot be opened as a checkpoint folder ({_reason(error)})."
            ) from None
        except ValueError:
            raise RefusedError(f"{shown_path(folder)} is not a path that can be opened.") from None
        if not is_folder:
            raise RefusedError(
                f"{shown_path(folder)} is a file; name the folder that holds config.json and the weights."
            )
        self.path = Path(folder)
        self._root = root
        self._inside = allowed_roots(root)

    def label(self, name: str) -> str:
        """A file of this folder as sentences name it."""
        return shown_path(self.path / name)

    def has(self, name: str) -> bool:
        """Whether the name leads to something; a link to nothing does not count."""
        return os.path.exists(os.path.join(self._root, name))

    def names(self, limit: int) -> list[str]:
        """At most `limit` names of the folder's entries, sorted."""
        found: list[str] = []
        try:
            with os.scandir(self._root) as entries:
                for entry in entries:
                    found.append(entry.name)
                    if len(found) >= limit:
                        break
        except OSError as error:
            raise RefusedError(f"{shown_path(self.path)} cannot be listed ({_reason(error)}).") from None
        return sorted(found)

    def _is_inside(self, real: str) -> bool:
        return real.startswith(self._inside)

    def open(self, name: str) -> OpenFile:
        """Open a file by its plain name. Raises RefusedError when it is missing, leads outside or is not regular."""
        label = self.label(name)
        try:
            real = os.path.realpath(os.path.join(self._root, name), strict=True)
            if not self._is_inside(real):
                raise RefusedError(
                    f"{label} is a link that leads outside the folder; put the file itself there "
                    f"(only a hub cache's links into its own blobs are followed)."
                )
            _require_regular(os.stat(real), label)
            # Non-blocking: were a pipe put here since, opening it must not wait for a writer.
            descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise RefusedError(f"{label} cannot be opened ({_reason(error)}).") from None
        try:
            status = os.fstat(descriptor)
            _require_regular(status, label)
        except BaseException:
            os.close(descriptor)
            raise
        return OpenFile(descriptor, name, label, status.st_size)


def _require_regular(status: os.stat_result, label: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(f"{label} is {_kind(status.st_mode)}, not a regular file; put the file itself there.")


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((words for test, words in kinds if test(mode)), "something else")


def _reason(error: OSError) -> str:
    if error.errno in _ABSENT:
        return "it is not there"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "this user may not read it"
    if error.errno == errno.ELOOP:
        return "its links go in a circle"
    return f"system error {errno.errorcode.get(error.errno or 0, 'unknown')}"
