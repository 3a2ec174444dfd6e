"""Checkpoints that exist as values: a reader, a hub and a package of weights, none of which reads a weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError, Transfer


class FakeCheckpointReader:
    """Knows the folders of `known`; every other one is refused."""

    def __init__(self, known: Mapping[Path, CheckpointFacts] | None = None) -> None:
        self.known = dict(known or {})

    def facts(self, folder: Path) -> CheckpointFacts:
        """As told."""
        if folder not in self.known:
            raise RefusedError(f"{folder.name} holds no config.json.")
        return self.known[folder]

    def config(self, folder: Path) -> Mapping[str, Any]:
        """As told."""
        return self.facts(folder).config

    def generation(self, folder: Path) -> Mapping[str, Any]:
        """As told."""
        return self.facts(folder).generation

    def weight_files(self, folder: Path) -> Sequence[str]:
        """The files that the known tensors lie in."""
        return sorted({header.file for header in self.facts(folder).tensors.values()})


class FakeModelHub:
    """Repositories of `folders`; `here` names those that are complete on this machine."""

    def __init__(self, folders: Mapping[str, Path] | None = None) -> None:
        self.folders = dict(folders or {})
        self.here: set[str] = set()
        self.asked: set[str] = set()
        self.fetched: list[tuple[str, str | None]] = []

    def fetch_config(self, repo: str, revision: str | None) -> Path:
        """The folder; its weights do not come with it."""
        folder = self._folder(repo, revision)
        self.asked.add(_named(repo, revision))
        return folder

    def fetch(
        self,
        repo: str,
        revision: str | None,
        on_progress: Callable[[str], None],
        on_transfer: Callable[[Transfer], None] | None = None,
    ) -> Path:
        """The folder, complete from now on."""
        folder = self._folder(repo, revision)
        if _named(repo, revision) not in self.here:
            on_progress(f"fetching {repo}")
            self.fetched.append((repo, revision))
            self.here.add(_named(repo, revision))
            if on_transfer is not None:
                on_transfer(Transfer(1, 1))
        return folder

    def cached(self, repo: str, revision: str | None) -> Path | None:
        """The folder once it was fetched."""
        return self.folders[_named(repo, revision)] if _named(repo, revision) in self.here else None

    def known(self, repo: str, revision: str | None) -> Path | None:
        """The folder once its configuration or all of it was fetched."""
        here = self.here | self.asked
        return self.folders[_named(repo, revision)] if _named(repo, revision) in here else None

    def _folder(self, repo: str, revision: str | None) -> Path:
        folder = self.folders.get(_named(repo, revision))
        if folder is None:
            raise RefusedError(f"The hub has no {_named(repo, revision)}.")
        return folder


def _named(repo: str, revision: str | None) -> str:
    return repo if revision is None else f"{repo}@{revision}"


class FakeWeightPackage:
    """Names with the folders they stand for; each is provided once and found from then on."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)
        self.converted: list[str] = []

    def names(self) -> Sequence[str]:
        """As constructed."""
        return tuple(self._folders)

    def provide(self, name: str, on_progress: Callable[[str], None]) -> Path:
        """The folder of a name."""
        if name not in self._folders:
            raise RefusedError(f"The package has no {name}; it has {', '.join(self._folders)}.")
        if name not in self.converted:
            on_progress(f"converting {name}")
            self.converted.append(name)
        return self._folders[name]

    def ready(self, name: str) -> Path | None:
        """The folder once it was provided."""
        return self._folders[name] if name in self.converted else None

    def describe(self, name: str) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """An empty config, known for every name."""
        return ({}, {}) if name in self._folders else None
