"""Snapshots of lane states in one folder, for one engine: found by their headers, loaded whole or not at all.

Whatever lies in the folder may be hostile. A file is used when its identity is this engine's, its sizes are those that
the state spec allows, and its checksum holds; each other is passed over. A disk that is full costs one line in the log.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tensorfold.adapters.filesystem.record_trouble import cause
from tensorfold.adapters.filesystem.snapshot_files import Found, SnapshotFolder
from tensorfold.adapters.filesystem.snapshot_format import (
    CHECKSUM_BYTES,
    LENGTH_BYTES,
    MOST_HEADER,
    Accepts,
    MalformedError,
    SnapshotHeader,
    SnapshotIdentity,
    is_plan,
    parse,
    parts,
)
from tensorfold.application.ports.stores import Snapshot, SnapshotKind
from tensorfold.application.ports.target_model import LaneImage
from tensorfold.domain.recall.layout import Ids

_PIECE = 4 << 20


class FolderSnapshotStore:
    """SnapshotStore over a folder. `accepts` is the state spec's word on buffers, `most_bytes` the largest file."""

    def __init__(
        self,
        folder: SnapshotFolder,
        identity: SnapshotIdentity,
        accepts: Accepts,
        log: Callable[[str], None],
        *,
        most_bytes: int = 10 << 30,
    ) -> None:
        self._folder = folder
        self._identity = identity
        self._accepts = accepts
        self._log = log
        self._most = most_bytes
        self._told: set[str] = set()
        self._try("looked for", folder.clean)

    def held(self) -> Sequence[Snapshot]:
        """As the port says."""
        found = (self._snapshot(file) for file in self._found())
        return tuple(snapshot for snapshot in found if snapshot is not None)

    def save(self, kind: SnapshotKind, ids: Ids, starts: Sequence[int], image: LaneImage) -> Snapshot | None:
        """As the port says."""
        key = self._key(ids)
        pieces = list(parts(self._identity, kind, ids, starts, image))
        size = sum(map(len, pieces)) + CHECKSUM_BYTES
        if size > self._most:
            return None
        if not self._try("written", lambda: self._folder.write(key, size, _with_checksum(pieces))):
            return None
        self._told.clear()
        return Snapshot(key, kind, ids.copy(), tuple(starts), size)

    def load(self, key: str) -> LaneImage | None:
        """As the port says."""
        try:
            with self._folder.reading(key) as (file, size):
                return self._read(key, file, size)
        except (OSError, MalformedError, MemoryError):
            return None

    def touch(self, key: str) -> None:
        """As the port says."""
        self._try("touched", lambda: self._folder.touch(key))

    def delete(self, key: str) -> None:
        """As the port says."""
        self._try("removed", lambda: self._folder.remove(key))

    def prune(self, kind: SnapshotKind, most: int, most_bytes: int | None = None) -> None:
        """As the port says."""
        kept, room = 0, most_bytes
        for file in self._found():
            header = self._header(file)
            if header is None or header.kind != kind or header.identity.model != self._identity.model:
                continue
            kept += 1
            room = None if room is None else room - file.size
            if kept > most or (room is not None and room < 0):
                self.delete(file.key)

    # -- reading -------------------------------------------------------------------------------------------------

    def _found(self) -> list[Found]:
        try:
            return self._folder.found()
        except OSError as error:
            self._tell("looked for", error)
            return []

    def _header(self, file: Found) -> SnapshotHeader | None:
        try:
            with self._folder.reading(file.key) as (opened, size):
                return self._parse(opened, size)
        except (OSError, MalformedError):
            return None

    def _parse(self, file: int, size: int) -> SnapshotHeader:
        length = int.from_bytes(os.read(file, LENGTH_BYTES), "little")
        if not 0 < length <= min(MOST_HEADER, size):
            raise MalformedError("the header's length is none")
        os.lseek(file, 0, os.SEEK_SET)
        header = parse(_exactly(file, LENGTH_BYTES + length))
        if header.size != size:
            raise MalformedError("the file has another size than its header says")
        return header

    def _mine(self, header: SnapshotHeader) -> bool:
        return (
            header.identity == self._identity
            and header.size <= self._most
            and self._accepts(header.ids, header.buffers)
        )

    def _snapshot(self, file: Found) -> Snapshot | None:
        try:
            with self._folder.reading(file.key) as (opened, size):
                header = self._parse(opened, size)
                if not self._mine(header):
                    return None
                ids, starts = _numbers(opened, header.ids), _numbers(opened, header.starts).tolist()
        except (OSError, MalformedError):
            return None
        if int(ids.min()) < 0 or not is_plan(starts, header.ids) or self._key(ids) != file.key:
            return None
        return Snapshot(file.key, header.kind, ids, tuple(starts), size)

    def _read(self, key: str, file: int, size: int) -> LaneImage:
        header = self._parse(file, size)
        if not self._mine(header):
            raise MalformedError("the file is of another engine")
        if self._key(_numbers(file, header.ids)) != key:
            raise MalformedError("the file's name is not of its ids")
        os.lseek(file, 0, os.SEEK_SET)
        checksum = hashlib.sha256(_exactly(file, header.data + 4 * (header.ids + header.starts)))
        buffers = []
        for name, length in header.buffers:
            data = _exactly(file, length)
            checksum.update(data)
            buffers.append((name, data))
        if _exactly(file, CHECKSUM_BYTES) != checksum.digest():
            raise MalformedError("the checksum does not hold")
        return LaneImage(header.ids, tuple(buffers), header.engine)

    # -- writing -------------------------------------------------------------------------------------------------

    def _key(self, ids: Ids) -> str:
        text = f"{self._identity.whole}\0{','.join(map(str, ids.tolist()))}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _try(self, what: str, call: Callable[[], None]) -> bool:
        try:
            call()
        except OSError as error:
            self._tell(what, error)
            return False
        return True

    def _tell(self, what: str, error: OSError) -> None:
        """One line for each trouble until a write succeeds."""
        line = f"a snapshot could not be {what}: {cause(error)}"
        if line not in self._told:
            self._told.add(line)
            self._log(line)


def _with_checksum(pieces: Sequence[bytes]) -> Iterator[bytes]:
    checksum = hashlib.sha256()
    for piece in pieces:
        checksum.update(piece)
        yield piece
    yield checksum.digest()


def _numbers(file: int, count: int) -> Ids:
    return np.frombuffer(_exactly(file, 4 * count), "<i4").astype(np.int32)


def _exactly(file: int, size: int) -> bytes:
    """So many bytes. Raises MalformedError where the file ends before."""
    pieces = []
    while size > 0:
        piece = os.read(file, min(size, _PIECE))
        if not piece:
            raise MalformedError("the file ends early")
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
