"""A file of lines on this machine, opened anew for each: one that was moved away is begun again."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

from tensorfold.application.ports.checkpoints import RefusedError

_OWN = 0o600
_OTHERS = 0o077
# A pipe in the file's place must not hold the writer.
_FLAGS = os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class PlainRequestFile:
    """The file at `path`, links followed; `variable` names where the path came from. Safe for several threads."""

    def __init__(self, path: Path, variable: str) -> None:
        self._path = path
        self._name = f"{variable} {path}"
        self._turn = threading.Lock()
        self._torn = False

    @property
    def name(self) -> str:
        """The variable and the path."""
        return self._name

    def append(self, line: bytes) -> None:
        """Add a line. Raises RefusedError."""
        try:
            with self._turn:
                self._append(line)
        except FileNotFoundError:
            raise RefusedError(f"{self._name} cannot be made: its folder is not there.") from None
        except PermissionError:
            raise RefusedError(f"{self._name} may not be written by the user that runs the server.") from None
        except (OSError, ValueError) as broken:
            reason = f"error {broken.errno}" if isinstance(broken, OSError) else "its name holds a null character"
            raise RefusedError(f"{self._name} cannot be written ({reason}).") from None

    def _append(self, line: bytes) -> None:
        descriptor = self._opened()
        try:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise RefusedError(f"{self._name} is not a plain file.")
            # Only where a mode tells who may read: elsewhere every file seems to be everybody's.
            if os.name == "posix" and seen.st_mode & _OTHERS:
                mode = stat.S_IMODE(seen.st_mode)
                raise RefusedError(f"{self._name} has mode {mode:04o}, so others may use it; `chmod 600` it.")
            self._write(descriptor, b"\n" + line if self._torn and line else line)
        finally:
            os.close(descriptor)

    def _opened(self) -> int:
        try:
            return os.open(self._path, _FLAGS)
        except FileNotFoundError:
            descriptor = os.open(self._path, _FLAGS | os.O_CREAT, _OWN)
        if os.name == "posix":
            # Whatever the umask took: the next line must find a file that its owner may write.
            os.fchmod(descriptor, _OWN)
        return descriptor

    def _write(self, descriptor: int, data: bytes) -> None:
        left = data
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError:
            # The next line must not go on where this one broke off.
            self._torn = self._torn or len(left) < len(data)
            raise
        if data:
            self._torn = False
