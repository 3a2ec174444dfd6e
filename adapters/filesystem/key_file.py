"""A file of API keys on this machine: looked at often, read rarely, in bounded memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.keys import Stamp

MOST_BYTES = 1 << 20
_OTHERS = 0o077


class FolderKeyFile:
    """The file at `path`, links followed; it may come and go."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = f"--api-key-file {path}"

    @property
    def name(self) -> str:
        """The flag and the path."""
        return self._name

    def stamp(self) -> Stamp:
        """Which file stands there, how large it is and when it changed last."""
        try:
            seen = self._path.stat()
        except (OSError, ValueError):
            return None
        return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns

    def read(self) -> bytes:
        """The whole file, which nobody but its owner may use. Raises RefusedError."""
        try:
            seen, data = self._opened()
        except FileNotFoundError:
            raise RefusedError(f"{self._name} is not there.") from None
        except PermissionError:
            raise RefusedError(f"{self._name} may not be read by the user that runs the server.") from None
        except (OSError, ValueError) as broken:
            reason = f"error {broken.errno}" if isinstance(broken, OSError) else "its name holds a null character"
            raise RefusedError(f"{self._name} cannot be read ({reason}).") from None
        if data is None:
            raise RefusedError(f"{self._name} is not a plain file.")
        if len(data) > MOST_BYTES:
            raise RefusedError(f"{self._name} holds {seen.st_size} bytes, more than the {MOST_BYTES} of a key file.")
        # Only where a mode tells who may read: elsewhere every file seems to be everybody's.
        if os.name == "posix" and seen.st_mode & _OTHERS:
            mode = stat.S_IMODE(seen.st_mode)
            raise RefusedError(f"{self._name} has mode {mode:04o}, so others may use it; `chmod 600` it.")
        return data

    def _opened(self) -> tuple[os.stat_result, bytes | None]:
        """The file's facts and at most one byte more than it may have; no bytes of what is no plain file."""
        # A pipe in the file's place must not hold the reader.
        descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        try:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                return seen, None
            with open(descriptor, "rb", closefd=False) as file:
                return seen, file.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
