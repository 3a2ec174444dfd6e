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


class ModelHub(Protocol):
    """A hub of checkpoints."""

    def fetch_config(self, repo: str, revision: str | None) -> Path:
        """A folder holding config.json (and generation_config.json when there is one). Raises RefusedError."""
        ...

    def fetch(self, repo: str, revision: str | None, on_progress: Callable[[str], None]) -> Path:
        """The whole checkpoint's folder, downloading what is missing. Raises RefusedError."""
        ...

    def cached(self, repo: str, revision: str | None) -> Path | None:
        """The folder when it is complete on this machine."""
        ...


class WeightPackage(Protocol):
    """A Python package that carries weights, such as the demo's."""

    def names(self) -> Sequence[str]:
        """Model names it answers to, for example `demo` and `demo@4bit`."""
        ...

    def provide(self, name: str, on_progress: Callable[[str], None]) -> Path:
        """A checkpoint folder for a name, fetched and converted once. Raises RefusedError."""
        ...
