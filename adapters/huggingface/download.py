"""Brings one file into the cache: on from where an earlier try ended, whole and with the stated digest, or not at all.

Bytes go to a file beside the blobs as they come, so that whatever ends the process, the next one goes on from there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tensorfold.adapters.huggingface.cache_folder import RepositoryFolder, write_all
from tensorfold.adapters.huggingface.client import Body, HubClient
from tensorfold.adapters.huggingface.digests import begun
from tensorfold.adapters.huggingface.faults import BrokenOffError
from tensorfold.adapters.huggingface.tree_list import RemoteFile
from tensorfold.application.ports.checkpoints import RefusedError

_CHUNK = 1 << 20
_ENOUGH = 1 << 16
"""Bytes after which a try counts as one that got on."""


class StoppedError(Exception):
    """Another file's failure, or the user, ended the download."""


@dataclass(frozen=True, slots=True)
class Way:
    """How one file is brought: from where, to where, and whom to tell. `moved` gets bytes, `say` lines.

    `pause` waits so many seconds; `waits` are those between tries that got nowhere.
    """

    client: HubClient
    folder: RepositoryFolder
    commit: str
    stop: threading.Event
    moved: Callable[[int], None]
    say: Callable[[str], None]
    pause: Callable[[float], object]
    waits: tuple[float, ...]


class Download:
    """One file under way."""

    def __init__(self, file: RemoteFile, way: Way) -> None:
        self._file = file
        self._way = way
        self._place = way.folder.partial(file.digest)
        self._at = 0
        self._digest: hashlib._Hash = begun(file)

    def run(self) -> None:
        """Bring it. Raises RefusedError, StoppedError and OSError; what has come so far stays."""
        blob = self._way.folder.blob(self._file.digest)
        if blob.is_file() and not blob.is_symlink() and blob.stat().st_size == self._file.size:
            self._way.moved(self._file.size)
        else:
            with _opened(str(self._place)) as descriptor:
                had = self._take_up(descriptor)
                self._complete(descriptor)
                if self._digest.hexdigest() != self._file.digest and had:
                    # What an earlier try left was damaged: once more, from the beginning.
                    self._again(descriptor)
                    self._complete(descriptor)
                if self._digest.hexdigest() != self._file.digest:
                    self._place.unlink()
                    raise RefusedError(
                        f"{self._file.name} of {self._way.folder.repo} came with other bytes than the hub's list "
                        "states by their digest; they were removed, run the same command again."
                    )
                os.fchmod(descriptor, 0o644)
                os.fsync(descriptor)
                os.replace(self._place, blob)
        self._way.folder.link(self._way.commit, self._file.name, self._file.digest)

    def _take_up(self, descriptor: int) -> bool:
        """Read what is there already; whether there was anything."""
        if os.fstat(descriptor).st_size > self._file.size:
            os.ftruncate(descriptor, 0)
        while chunk := os.pread(descriptor, _CHUNK, self._at):
            self._check()
            self._count(chunk)
        return self._at > 0

    def _again(self, descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        self._way.moved(-self._at)
        self._at, self._digest = 0, begun(self._file)

    def _complete(self, descriptor: int) -> None:
        failed, mark = 0, self._at
        while self._at < self._file.size:
            try:
                with self._way.client.part(self._way.folder.repo, self._way.commit, self._file.name, self._at) as body:
                    self._receive(body, descriptor)
            except BrokenOffError as fault:
                failed = 0 if self._at - mark >= _ENOUGH else failed + 1
                mark = self._at
                self._wait(fault, failed)

    def _receive(self, body: Body, descriptor: int) -> None:
        if body.size is not None and body.size != self._file.size:
            raise RefusedError(
                f"{self._file.name} of {self._way.folder.repo} has {self._file.size:,} bytes in the hub's list and "
                f"{body.size:,} where it is fetched; check HF_ENDPOINT."
            )
        if body.start != self._at:
            self._again(descriptor)
        for chunk in body.chunks:
            self._check()
            if self._at + len(chunk) > self._file.size:
                raise RefusedError(
                    f"More bytes come for {self._file.name} of {self._way.folder.repo} than the {self._file.size:,} "
                    "that the hub states; check HF_ENDPOINT."
                )
            os.lseek(descriptor, self._at, os.SEEK_SET)
            write_all(descriptor, chunk)
            self._count(chunk)
        if self._at < self._file.size:
            raise BrokenOffError("the connection ended early")

    def _count(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self._at += len(chunk)
        self._way.moved(len(chunk))

    def _wait(self, fault: BrokenOffError, failed: int) -> None:
        if failed > len(self._way.waits):
            # Not an UnreachableError: an older copy may stand in for a silent hub, but not for half of a newer one.
            raise RefusedError(self._way.client.unreachable(fault).message) from None
        self._way.say(f"{self._file.name}: {fault.reason}; going on from byte {self._at:,}")
        self._check()
        if failed or fault.wait is not None:
            self._way.pause(fault.wait if fault.wait is not None else self._way.waits[failed - 1])
        self._check()

    def _check(self) -> None:
        if self._way.stop.is_set():
            raise StoppedError


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """A file to read and write, made when it is not there; never one behind a link."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
