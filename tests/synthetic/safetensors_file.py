"""Writes tensors as safetensors files, whole or in shards with an index, with nothing but numpy.

Source: the format's documentation: an 8-byte header length, a JSON header, then the tensors' bytes one after another.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor's bytes under the name of its dtype; bfloat16 is held as the uint16 of its bits."""

    dtype: str
    values: NDArray[Any]


class PendingTensor(Protocol):
    """A tensor whose header is known before its values are made."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def make(self) -> Callable[[], Stored]: ...


def as_stored(values: NDArray[np.floating[Any]], dtype: str) -> Stored:
    """Values rounded to a float dtype (`F32`, `F16` or `BF16`), to nearest, ties to even."""
    if dtype == "BF16":
        # In uint32, since the largest finite value stays below 2^32 when it is rounded up.
        bits = np.asarray(values, np.float32).view(np.uint32)
        rounded = bits >> 16
        rounded &= 1
        rounded += bits
        rounded += 0x7FFF
        rounded >>= 16
        return Stored(dtype, rounded.astype(np.uint16))
    return Stored(dtype, values.astype(np.float16 if dtype == "F16" else np.float32))


def as_values(stored: Stored) -> NDArray[np.float64]:
    """What a stored float tensor holds."""
    if stored.dtype == "BF16":
        return (stored.values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.values.astype(np.float64)


def write_tensors(folder: Path, tensors: Mapping[str, Stored], shards: int = 1) -> None:
    """One file, or `shards` files with an index; names are dealt out in turn."""
    if shards == 1:
        (folder / WHOLE).write_bytes(file_bytes(tensors))
        return
    placed: dict[str, str] = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: value for at, (key, value) in enumerate(tensors.items()) if at % shards == number}
        (folder / name).write_bytes(file_bytes(part))
        placed.update(dict.fromkeys(part, name))
    size = sum(stored.values.nbytes for stored in tensors.values())
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": placed}))


def file_bytes(tensors: Mapping[str, Stored]) -> bytes:
    """One safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    at = 0
    for name, stored in tensors.items():
        end = at + stored.values.nbytes
        header[name] = {"dtype": stored.dtype, "shape": list(stored.values.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(np.ascontiguousarray(stored.values).tobytes() for stored in tensors.values())
    return struct.pack("<Q", len(text)) + text + data


def write_pending(folder: Path, tensors: Sequence[PendingTensor], shards: int = 1, name: str = WHOLE) -> None:
    """One file called `name`, or `shards` files with an index, written tensor by tensor as each is made.

    Shards hold neighbouring tensors and about as many bytes each.
    """
    if shards == 1:
        _stream(folder / name, tensors)
        return
    total, at = sum(one.nbytes for one in tensors), 0
    parts: list[list[PendingTensor]] = [[] for _ in range(shards)]
    for one in tensors:
        parts[min(shards - 1, at * shards // max(total, 1))].append(one)
        at += one.nbytes
    placed: dict[str, str] = {}
    for number, part in enumerate(parts):
        file = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        _stream(folder / file, part)
        placed.update(dict.fromkeys((one.name for one in part), file))
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": placed}))


def _stream(path: Path, tensors: Sequence[PendingTensor]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "mlx"}}
    at = 0
    for one in tensors:
        header[one.name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": [at, at + one.nbytes]}
        at += one.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for one in tensors:
            made = one.make()
            if made.dtype != one.dtype or made.values.shape != one.shape or made.values.nbytes != one.nbytes:
                raise ValueError(f"{one.name} is {made.dtype} {made.values.shape}, announced {one.dtype} {one.shape}")
            file.write(np.ascontiguousarray(made.values).tobytes())
