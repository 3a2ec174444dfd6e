"""Opens a GGUF file of version 2 or 3: metadata and tensor list validated first, rows of bytes afterwards.

The file is hostile: counts, lengths, offsets, dimensions and alignment are bounded before anything is allocated or
read. Knows nothing of architectures. Source: the GGUF format's documentation.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.packages.gguf_fields import GgufFields, Value
from tensorfold.adapters.packages.gguf_types import READ, REFUSED, GgufTensor
from tensorfold.application.ports.checkpoints import RefusedError

MOST_KEYS, MOST_TENSORS, MOST_AXES, MOST_NAME = 4096, 65_536, 4, 128
MOST_SIZE = (1 << 31) - 1
MOST_ALIGNMENT = 1 << 16
_VERSIONS = (2, 3)


class GgufFile:
    """An open GGUF file; `metadata` and `tensors` are validated. Raises RefusedError."""

    def __init__(self, path: Path) -> None:
        self.label = str(path) if str(path).isprintable() else ascii(str(path))
        try:
            self._file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        except (OSError, ValueError):
            raise RefusedError(f"{self.label} cannot be opened as a GGUF file.") from None
        try:
            status = os.fstat(self._file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise RefusedError(f"{self.label} is not a regular file.")
            fields = GgufFields(self._file, status.st_size, self.label)
            self.metadata, self.tensors = _read_header(fields, status.st_size)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read_rows(self, tensor: GgufTensor, start: int, stop: int) -> NDArray[np.uint8]:
        """Rows start to stop of a tensor as bytes, shape [stop - start, row_bytes]."""
        length = (stop - start) * tensor.row_bytes
        self._file.seek(tensor.begin + start * tensor.row_bytes)
        data = self._file.read(length)
        if len(data) != length:
            raise RefusedError(f"{self.label} ended inside the tensor {tensor.name} while it was being read.")
        return np.frombuffer(data, np.uint8).reshape(stop - start, tensor.row_bytes)


def _read_header(fields: GgufFields, size: int) -> tuple[dict[str, Value], dict[str, GgufTensor]]:
    if size < 24 or fields.take(4) != b"GGUF":
        raise fields.refusal("is not a GGUF file")
    version = fields.u32()
    if version not in _VERSIONS:
        big_endian = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
        what = "is a big-endian GGUF file" if big_endian else f"has GGUF version {version}"
        raise fields.refusal(f"{what}; little-endian versions 2 and 3 are read")
    tensor_count, key_count = fields.u64(), fields.u64()
    if tensor_count > MOST_TENSORS or key_count > MOST_KEYS:
        raise fields.refusal(
            f"states {tensor_count} tensors and {key_count} keys, more than {MOST_TENSORS} and {MOST_KEYS}"
        )
    metadata = _read_metadata(fields, key_count)
    listed = [_read_tensor(fields) for _ in range(tensor_count)]
    alignment = _alignment(fields, metadata)
    begin = -(-fields.position // alignment) * alignment
    return metadata, _placed(fields, listed, begin, alignment, size)


def _read_metadata(fields: GgufFields, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for _ in range(count):
        key = _name(fields, "key")
        if key in metadata:
            raise fields.refusal(f"has the key {key} twice")
        metadata[key] = fields.value(key)
    return metadata


def _name(fields: GgufFields, what: str) -> str:
    name = fields.string()
    if not name or len(name) > MOST_NAME or not name.isprintable():
        raise fields.refusal(f"has a {what} that is not 1 to {MOST_NAME} printable characters")
    return name


def _read_tensor(fields: GgufFields) -> GgufTensor:
    """A tensor whose `begin` is still relative to the data."""
    name = _name(fields, "tensor name")
    axes = fields.u32()
    if not 1 <= axes <= MOST_AXES:
        raise fields.refusal(f"gives the tensor {name} {axes} axes; 1 to {MOST_AXES} are read")
    shape = tuple(reversed([fields.u64() for _ in range(axes)]))
    code, offset = fields.u32(), fields.u64()
    if code not in READ:
        kind = REFUSED.get(code, f"number {code}")
        known = ", ".join(sorted(known.name for known in READ.values()))
        raise fields.refusal(f"stores the tensor {name} as {kind}; converted are {known}")
    if any(not 1 <= size <= MOST_SIZE for size in shape) or shape[-1] % READ[code].block:
        raise fields.refusal(f"gives the tensor {name} the shape {list(shape)}, which {READ[code].name} cannot have")
    return GgufTensor(name, READ[code], shape, offset)


def _alignment(fields: GgufFields, metadata: Mapping[str, Value]) -> int:
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 8 <= alignment <= MOST_ALIGNMENT or alignment % 8:
        raise fields.refusal(f"has general.alignment other than a multiple of 8 up to {MOST_ALIGNMENT}")
    return alignment


def _placed(
    fields: GgufFields, listed: list[GgufTensor], begin: int, alignment: int, size: int
) -> dict[str, GgufTensor]:
    """Tensors by name with offsets in the file; none overlaps another or passes the file's end."""
    placed: dict[str, GgufTensor] = {}
    for tensor in listed:
        if tensor.name in placed:
            raise fields.refusal(f"has the tensor {tensor.name} twice")
        if tensor.begin % alignment:
            raise fields.refusal(f"places the tensor {tensor.name} off its alignment of {alignment} bytes")
        if begin + tensor.begin + tensor.nbytes > size:
            end = begin + tensor.begin + tensor.nbytes
            raise fields.refusal(f"has {size} bytes and places the tensor {tensor.name} up to byte {end}")
        placed[tensor.name] = GgufTensor(tensor.name, tensor.type, tensor.shape, begin + tensor.begin)
    end = begin
    for tensor in sorted(placed.values(), key=lambda tensor: tensor.begin):
        if tensor.begin < end:
            raise fields.refusal(f"places the tensor {tensor.name} over another one")
        end = tensor.begin + tensor.nbytes
    return placed
