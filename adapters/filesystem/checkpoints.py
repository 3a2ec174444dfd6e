"""Reads a checkpoint folder: config.json, generation_config.json and the headers of every safetensors file.

Everything in the folder is hostile. Nothing is mapped, unpickled, imported or executed; apart from the few sampled
bytes of the digest, no tensor byte is read, and those only after every header has been found good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensorfold.adapters.filesystem.checkpoint_folder import CheckpointFolder
from tensorfold.adapters.filesystem.checkpoint_json import parse_object
from tensorfold.adapters.filesystem.checkpoint_limits import CheckpointLimits, quoted, shown
from tensorfold.adapters.filesystem.safetensors_headers import ShardHeader, read_header
from tensorfold.adapters.filesystem.shard_index import read_index
from tensorfold.adapters.filesystem.weight_digest import WeightDigest
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.domain.families.listing import beside
from tensorfold.domain.families.tensors import SideFile

CONFIG = "config.json"
GENERATION = "generation_config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_UNREAD = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".gguf", ".npz", ".h5", ".msgpack", ".onnx")


class FolderReader:
    """The CheckpointReader of local folders."""

    def __init__(self, limits: CheckpointLimits | None = None) -> None:
        self._limits = limits or CheckpointLimits()

    def config(self, folder: Path) -> Mapping[str, Any]:
        """config.json alone, parsed. Raises RefusedError."""
        opened = CheckpointFolder(folder)
        return parse_object(self._json_bytes(opened, CONFIG), opened.label(CONFIG), self._limits)

    def generation(self, folder: Path) -> Mapping[str, Any]:
        """generation_config.json alone, parsed; an empty mapping when there is none. Raises RefusedError."""
        return self._generation(CheckpointFolder(folder))

    def weight_files(self, folder: Path) -> Sequence[str]:
        """Names of the files that hold the weights, by the index or the one file's. Raises RefusedError."""
        opened = CheckpointFolder(folder)
        return sorted(set(self._index(opened).values())) if opened.has(INDEX) else [WEIGHTS]

    def facts(self, folder: Path) -> CheckpointFacts:
        """Validate everything but the weight bytes. Raises RefusedError."""
        opened = CheckpointFolder(folder)
        config_bytes = self._json_bytes(opened, CONFIG)
        config = parse_object(config_bytes, opened.label(CONFIG), self._limits)
        generation = self._generation(opened)
        headers = self._headers(opened)
        self._add_side_files(opened, beside(config), headers)
        tensors = {tensor.name: tensor for header in headers.values() for tensor in header.tensors}
        digest = WeightDigest(config_bytes, len(tensors))
        for name, header in headers.items():
            with opened.open(name) as file:
                digest.add_file(file, header.digest, header.tensors)
        size = sum(tensor.nbytes for tensor in tensors.values())
        return CheckpointFacts(Path(folder), config, generation, tensors, size, digest.hexdigest())

    def _generation(self, folder: CheckpointFolder) -> Mapping[str, Any]:
        if not folder.has(GENERATION):
            return {}
        return parse_object(self._json_bytes(folder, GENERATION), folder.label(GENERATION), self._limits)

    def _index(self, folder: CheckpointFolder) -> dict[str, str]:
        with folder.open(INDEX) as file:
            return read_index(file, self._limits)

    def _json_bytes(self, folder: CheckpointFolder, name: str) -> bytes:
        with folder.open(name) as file:
            if file.size > self._limits.json_bytes:
                most = self._limits.json_bytes
                raise RefusedError(f"{file.label} has {file.size} bytes, more than the {most} that are read.")
            return file.read(0, file.size)

    def _headers(self, folder: CheckpointFolder) -> dict[str, ShardHeader]:
        """Headers by file name, in name order; together they hold each tensor once and agree with the index."""
        placed = self._placed(folder)
        names = sorted(set(placed.values())) if placed is not None else [WEIGHTS]
        _require_present(folder, names)
        headers: dict[str, ShardHeader] = {}
        owners: dict[str, str] = {}
        for name in names:
            with folder.open(name) as file:
                header = read_header(file, self._limits, self._limits.tensors - len(owners))
            for tensor in header.tensors:
                if tensor.name in owners:
                    first = folder.label(owners[tensor.name])
                    raise RefusedError(f"{first} holds the tensor {quoted(tensor.name)}, and so does {name}.")
                owners[tensor.name] = name
            headers[name] = header
        if placed is not None:
            _require_agreement(folder, placed, owners)
        if not owners:
            raise RefusedError(f"{folder.label(WEIGHTS)} holds no tensor; download the checkpoint again.")
        return headers

    def _add_side_files(
        self, folder: CheckpointFolder, wanted: Sequence[SideFile], headers: dict[str, ShardHeader]
    ) -> None:
        """Headers of the files beside the shards that are there, their tensors under the family's names for them."""
        owners = {tensor.name: name for name, header in headers.items() for tensor in header.tensors}
        for side in wanted:
            if side.name in headers or not folder.has(side.name):
                continue
            with folder.open(side.name) as file:
                header = read_header(file, self._limits, self._limits.tensors - len(owners))
            tensors = tuple(replace(tensor, name=side.prefix + tensor.name) for tensor in header.tensors)
            for tensor in tensors:
                if tensor.name in owners:
                    first = folder.label(owners[tensor.name])
                    raise RefusedError(f"{first} holds the tensor {quoted(tensor.name)}, and so does {side.name}.")
                owners[tensor.name] = side.name
            headers[side.name] = replace(header, tensors=tensors)

    def _placed(self, folder: CheckpointFolder) -> dict[str, str] | None:
        """The index's placement, None for a checkpoint of one file. Raises RefusedError when there are no weights."""
        if folder.has(INDEX):
            placed = self._index(folder)
            if folder.has(WEIGHTS) and WEIGHTS not in placed.values():
                raise RefusedError(
                    f"{folder.label(WEIGHTS)} stands beside an index that does not name it; remove one of the two."
                )
            return placed
        if not folder.has(WEIGHTS):
            raise RefusedError(_no_weights(folder, folder.names(self._limits.folder_entries)))
        return None


def _require_present(folder: CheckpointFolder, names: list[str]) -> None:
    missing = [name for name in names if not folder.has(name)]
    if missing:
        raise RefusedError(
            f"{folder.label(INDEX)} names {len(names)} files and {len(missing)} of them are not there: "
            f"{', '.join(missing)}; download the checkpoint again."
        )


def _require_agreement(folder: CheckpointFolder, placed: Mapping[str, str], owners: Mapping[str, str]) -> None:
    for name, file in placed.items():
        if owners.get(name) != file:
            raise RefusedError(
                f"{folder.label(INDEX)} places the tensor {quoted(name)} in {file}, which does not hold it; "
                f"download the checkpoint again."
            )
    for name, file in owners.items():
        if name not in placed:
            raise RefusedError(
                f"{folder.label(file)} holds the tensor {quoted(name)}, which {INDEX} does not name; "
                f"download the checkpoint again."
            )


def _no_weights(folder: CheckpointFolder, names: list[str]) -> str:
    """The sentence for a folder without safetensors weights, naming what it holds instead."""
    shards = [name for name in names if name.endswith(".safetensors")]
    if shards:
        return f"{folder.label(INDEX)} is not there, and only it says whether {shown(shards[0])} is all of the weights."
    unread = next((name for name in names if name.endswith(_UNREAD)), None)
    if unread is not None:
        return (
            f"{folder.label(unread)} is not read, since only safetensors weights are; "
            f"use a checkpoint that has {WEIGHTS}."
        )
    return f"{folder.label(WEIGHTS)} is not there, nor is {INDEX}; download the checkpoint again."
