"""Validates the header of one safetensors file before anything is mapped; tensor bytes are never read here.

Layout: 8 bytes little-endian header length, a JSON object of name -> {dtype, shape, data_offsets}, then the data.
Invariant: the tensors that come back fill the data exactly, in order, without overlap, hole or rest, and each
range agrees with its shape. Source: the safetensors format's documentation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorfold.adapters.filesystem.checkpoint_folder import OpenFile
from tensorfold.adapters.filesystem.checkpoint_limits import CheckpointLimits, quoted, shown
from tensorfold.adapters.filesystem.checkpoint_stream import JsonStream
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.storage import DTYPE_BYTES, TensorHeader

PREFIX_BYTES = 8
_FIELDS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True, slots=True)
class ShardHeader:
    """The tensors of one file in the order of their bytes, and the SHA-256 of its length prefix and header."""

    tensors: tuple[TensorHeader, ...]
    digest: bytes


def read_header(file: OpenFile, limits: CheckpointLimits, tensors_left: int) -> ShardHeader:
    """Read and validate a header; at most `tensors_left` tensors. Raises RefusedError."""
    length, digest = _header_length(file, limits)
    data_begin = PREFIX_BYTES + length
    stream = JsonStream(_source(file, length, digest), f"{file.label}: the header")
    tensors: dict[str, TensorHeader] = {}
    for name in stream.members(limits.entry_bytes):
        if name == "__metadata__":
            _skip_metadata(stream, limits)
            continue
        if name in tensors:
            raise RefusedError(f"{file.label} holds the tensor {quoted(name)} twice.")
        if len(tensors) >= tensors_left:
            raise RefusedError(f"{file.label} brings more tensors than the {limits.tensors} a checkpoint may hold.")
        check_name(name, file.label, limits)
        tensors[name] = _tensor(name, stream.value(limits.entry_bytes), file, data_begin, limits)
    stream.finish()
    ordered = tuple(sorted(tensors.values(), key=lambda tensor: (tensor.begin, tensor.end)))
    _require_filled(ordered, file, data_begin)
    return ShardHeader(ordered, digest.digest())


def check_name(name: str, label: str, limits: CheckpointLimits) -> None:
    """Raises RefusedError for a tensor name that is empty, too long or not printable."""
    if not name or len(name) > limits.name_characters or not name.isprintable():
        raise RefusedError(
            f"{label} names a tensor {quoted(name)}: a name has 1 to {limits.name_characters} printable characters."
        )


def _header_length(file: OpenFile, limits: CheckpointLimits) -> tuple[int, hashlib._Hash]:
    if file.size < PREFIX_BYTES + 2:
        raise RefusedError(
            f"{file.label} has {file.size} bytes, too few for a safetensors file; download the checkpoint again."
        )
    prefix = file.read(0, PREFIX_BYTES)
    length = int.from_bytes(prefix, "little")
    if length > limits.header_bytes:
        raise RefusedError(
            f"{file.label} states a header of {length} bytes, more than the {limits.header_bytes} the safetensors "
            f"format allows; it is no safetensors file or a damaged one."
        )
    if PREFIX_BYTES + length > file.size:
        raise RefusedError(
            f"{file.label} has {file.size} bytes and states a header of {length} bytes; download the checkpoint again."
        )
    if length < 2 or file.read(PREFIX_BYTES, 1) != b"{":
        raise RefusedError(f"{file.label}: the header does not begin with '{{'; it is no safetensors file.")
    return length, hashlib.sha256(prefix)


def _source(file: OpenFile, length: int, digest: hashlib._Hash) -> Callable[[int], bytes]:
    position, end = PREFIX_BYTES, PREFIX_BYTES + length

    def take(most: int) -> bytes:
        nonlocal position
        part = file.read(position, min(most, end - position))
        position += len(part)
        digest.update(part)
        return part

    return take


def _skip_metadata(stream: JsonStream, limits: CheckpointLimits) -> None:
    """Free text for people: checked to be strings, then dropped."""
    if stream.is_null():
        return
    for _ in stream.members(limits.entry_bytes):
        stream.string(limits.metadata_bytes)


def _tensor(name: str, entry: Any, file: OpenFile, data_begin: int, limits: CheckpointLimits) -> TensorHeader:
    label = f"{file.label}: tensor {quoted(name)}"
    if not isinstance(entry, Mapping) or set(entry) != _FIELDS:
        raise RefusedError(f"{label} is not described by exactly dtype, shape and data_offsets.")
    dtype = entry["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        raise RefusedError(f"{label} has the dtype {quoted(dtype)}; known are {', '.join(DTYPE_BYTES)}.")
    shape = _counts(entry["shape"])
    if shape is None or len(shape) > limits.rank or any(size > limits.dimension for size in shape):
        raise RefusedError(
            f"{label} has the shape {shown(entry['shape'])}; a shape is at most {limits.rank} whole numbers "
            f"from 0 to {limits.dimension}."
        )
    offsets = _counts(entry["data_offsets"])
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise RefusedError(f"{label} has the data_offsets {shown(entry['data_offsets'])}; they are a begin and an end.")
    begin, end = offsets
    needed = DTYPE_BYTES[dtype]
    for size in shape:
        needed *= size
    if needed != end - begin:
        raise RefusedError(
            f"{label} has {end - begin} bytes where {dtype} of shape {shown(list(shape))} takes {needed}."
        )
    return TensorHeader(name, dtype, shape, file.name, data_begin + begin, data_begin + end)


def _counts(value: Any) -> tuple[int, ...] | None:
    """The whole numbers of a list, none below 0 (booleans are not numbers); None for anything else."""
    if not isinstance(value, list) or any(type(item) is not int or item < 0 for item in value):
        return None
    return tuple(value)


def _require_filled(ordered: tuple[TensorHeader, ...], file: OpenFile, data_begin: int) -> None:
    last = max((tensor.end for tensor in ordered), default=data_begin)
    if last != file.size:
        raise RefusedError(
            f"{file.label} has {file.size} bytes where its header places tensors up to byte {last}; "
            f"download the checkpoint again."
        )
    position = data_begin
    for tensor in ordered:
        if tensor.begin != position:
            fault = "they overlap" if tensor.begin < position else "bytes between them belong to none"
            raise RefusedError(
                f"{file.label}: tensor {quoted(tensor.name)} begins at byte {tensor.begin} where the one before it "
                f"ends at byte {position}: {fault}."
            )
        position = tensor.end
