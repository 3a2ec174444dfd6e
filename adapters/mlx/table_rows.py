"""Rows of a table that stays in its file: only the rows asked for are read, however large the table.

A file that was cut short meanwhile fails the read with a sentence; nothing is mapped, so nothing can crash. Knows no
op and no device.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.storage import Affine, Storage, TensorHeader
from tensorfold.domain.families.stored_modules import Module

_READERS, _PIECE = 16, 64
"""Reads that wait for a disk at once, and the rows each of them reads in turn: fewer are read without handing over."""
_DENSE = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class TableRows:
    """A table [rows, width] stored as one module or as equal shards of its rows; `headers` are the checkpoint's.

    Raises RefusedError, when built and when read, for a file that does not hold what its header states.
    """

    def __init__(
        self, folder: Path, headers: Mapping[str, TensorHeader], modules: Sequence[Module], storage: Storage, width: int
    ) -> None:
        self._storage, self._width = storage, width
        self._files: dict[str, int] = {}
        self._readers = ThreadPoolExecutor(_READERS, "table")
        weakref.finalize(self, self._readers.shutdown, wait=False)
        self._shards = [[headers[name] for name in module.tensors()] for module in modules]
        self._shard_rows = int(np.prod(self._shards[0][0].shape[:-1]))
        for header in (header for shard in self._shards for header in shard):
            self._check(folder, header)

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return len(self._shards) * self._shard_rows

    def __call__(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Rows [*ids.shape, width] in float32, each read once; ids are at least 0 and below `rows`."""
        own, back = np.unique(ids, return_inverse=True)
        stored = [self._stored(part, own) for part in range(len(self._shards[0]))]
        values = self._decoded(stored)
        return values[back.reshape(ids.shape)]

    def _stored(self, part: int, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The bytes of these rows of one tensor of every module, [n, bytes]."""
        read = partial(self._read, part)
        pieces = [ids[at : at + _PIECE] for at in range(0, len(ids), _PIECE)]
        found = self._readers.map(read, pieces) if len(pieces) > 1 else map(read, pieces)
        return np.frombuffer(b"".join(found), np.uint8).reshape(len(ids), -1)

    def _read(self, part: int, ids: NDArray[np.int64]) -> bytes:
        size = self._shards[0][part].nbytes // self._shard_rows
        found = []
        for row in ids.tolist():
            header = self._shards[row // self._shard_rows][part]
            begin = header.begin + row % self._shard_rows * size
            try:
                data = os.pread(self._files[header.file], size, begin)
            except OSError:
                data = b""
            if len(data) != size:
                raise _cut_short(header)
            found.append(data)
        return b"".join(found)

    def _decoded(self, stored: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        storage = self._storage
        if not isinstance(storage, Affine):
            return _floats(stored[0], storage.dtype)
        codes = _codes(stored[0], storage.bits, self._width)
        scales, biases = (_floats(part, storage.dtype)[:, :, None] for part in stored[1:3])
        with np.errstate(over="ignore", invalid="ignore"):  # a file may hold any scale
            values = codes.reshape(len(codes), -1, storage.group) * scales + biases
        return np.ascontiguousarray(values.reshape(len(codes), -1))

    def _check(self, folder: Path, header: TensorHeader) -> None:
        if header.file not in self._files:
            try:
                opened = os.open(folder / header.file, os.O_RDONLY)
            except OSError:
                raise _cut_short(header) from None
            weakref.finalize(self, os.close, opened)
            self._files[header.file] = opened
        if os.fstat(self._files[header.file]).st_size < header.end:
            raise _cut_short(header)


def _floats(stored: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """Stored floats [n, bytes] in float32."""
    raw: NDArray[Any] = stored.view(_DENSE[dtype])
    if dtype == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32)


def _codes(stored: NDArray[np.uint8], bits: int, width: int) -> NDArray[np.float32]:
    """Codes [n, width] of packed words: a row is one stream of bits, the lowest first."""
    stream = np.unpackbits(stored, axis=1, bitorder="little").reshape(len(stored), -1, bits)[:, :width]
    made: NDArray[np.float32] = stream.astype(np.float32) @ (2.0 ** np.arange(bits, dtype=np.float32))
    return made


def _cut_short(header: TensorHeader) -> RefusedError:
    return RefusedError(
        f"{header.file} no longer holds the rows of {header.name} that its header states; wait until nothing writes to "
        "the checkpoint and start again."
    )
