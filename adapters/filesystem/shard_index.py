"""Reads model.safetensors.index.json: which file of the folder holds which tensor.

A file is named by a plain name that ends in .safetensors: nothing in an index can lead out of the folder.
"""

from __future__ import annotations

import re

from tensorfold.adapters.filesystem.checkpoint_folder import OpenFile
from tensorfold.adapters.filesystem.checkpoint_limits import CheckpointLimits, quoted
from tensorfold.adapters.filesystem.checkpoint_stream import JsonStream
from tensorfold.adapters.filesystem.safetensors_headers import check_name
from tensorfold.application.ports.checkpoints import RefusedError

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,200}\.safetensors")
_OTHER_VALUE = 1 << 16


def read_index(file: OpenFile, limits: CheckpointLimits) -> dict[str, str]:
    """Tensor name -> file name, as `weight_map` says. Raises RefusedError."""
    if file.size > limits.index_bytes:
        raise RefusedError(f"{file.label} has {file.size} bytes, more than the {limits.index_bytes} of an index.")
    position = 0

    def take(most: int) -> bytes:
        nonlocal position
        part = file.read(position, min(most, file.size - position))
        position += len(part)
        return part

    stream = JsonStream(take, file.label)
    weight_map: dict[str, str] | None = None
    for key in stream.members(_OTHER_VALUE):
        if key != "weight_map":
            stream.value(_OTHER_VALUE)
        elif weight_map is not None:
            raise RefusedError(f"{file.label} says 'weight_map' twice.")
        else:
            weight_map = _weight_map(stream, file.label, limits)
    stream.finish()
    if not weight_map:
        raise RefusedError(f"{file.label} has no weight_map that names a tensor; download the checkpoint again.")
    return weight_map


def _weight_map(stream: JsonStream, label: str, limits: CheckpointLimits) -> dict[str, str]:
    placed: dict[str, str] = {}
    files: dict[str, str] = {}
    for name in stream.members(limits.entry_bytes):
        target = stream.string(limits.entry_bytes)
        if name in placed:
            raise RefusedError(f"{label} places the tensor {quoted(name)} twice.")
        check_name(name, label, limits)
        if not _PLAIN.fullmatch(target):
            raise RefusedError(
                f"{label} places the tensor {quoted(name)} in {quoted(target)}; a shard is a plain file name of the "
                f"same folder that ends in .safetensors."
            )
        placed[name] = files.setdefault(target, target)
        if len(placed) > limits.tensors:
            raise RefusedError(f"{label} names more tensors than the {limits.tensors} a checkpoint may hold.")
        if len(files) > limits.shards:
            raise RefusedError(f"{label} names more files than the {limits.shards} a checkpoint may have.")
    return placed
