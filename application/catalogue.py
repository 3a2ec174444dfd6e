"""Where a model named on the command line comes from: a folder, a package that carries it, or a hub's repository."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold.application.checkpoint_notes import notes
from tensorfold.application.ports.checkpoints import CheckpointReader, ModelHub, RefusedError, Transfer, WeightPackage

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_REPO = re.compile(rf"({_PART}/{_PART})(?:@({_PART}))?")
_MOST_NAME = 96

Say = Callable[[str], None]
OnTransfer = Callable[[Transfer], None]


@dataclass(frozen=True, slots=True)
class RepoName:
    """A repository of a hub, and the branch, tag or commit asked for; None is the hub's main branch."""

    repo: str
    revision: str | None

    def __str__(self) -> str:
        return self.repo if self.revision is None else f"{self.repo}@{self.revision}"


def parse_repo(text: str) -> RepoName | None:
    """`owner/name` or `owner/name@revision`; None for anything else. Raises RefusedError for names no hub takes."""
    found = _REPO.fullmatch(text)
    if found is None:
        return None
    repo, revision = found.group(1), found.group(2)
    # A cache keeps owner and name apart by two dashes, so a name that holds them could stand for another one.
    if "--" in repo or ".." in text or len(repo) > _MOST_NAME:
        raise RefusedError(
            f"{text:.120} is no name of a repository: owner and name have at most {_MOST_NAME} characters together, "
            "and neither two dashes nor two dots in a row."
        )
    return RepoName(repo, revision)


@dataclass(frozen=True, slots=True)
class ModelSources:
    """What a model can come from; `hub` makes the hub when a repository is asked for, and not before."""

    package: WeightPackage
    hub: Callable[[], ModelHub]
    reader: CheckpointReader

    def locate(
        self,
        model: str,
        on_progress: Say,
        *,
        check: Callable[[Mapping[str, Any]], object],
        on_transfer: OnTransfer | None = None,
    ) -> Path:
        """The checkpoint folder of a model, downloaded where it is missing. Raises RefusedError with one sentence.

        `check` refuses a config.json that need not be downloaded further. A repository that is complete on this machine
        is taken as it is, without asking the hub.
        """
        if model in self.package.names():
            return self.package.provide(model, on_progress)
        folder = Path(model).expanduser()
        if folder.is_dir():
            return folder
        name = parse_repo(model)
        if name is None:
            raise RefusedError(self.neither(model))
        folder = self._repository(name, on_progress, check, on_transfer)
        for note in notes(name.repo, self.reader.config(folder)):
            on_progress(f"{name}: {note}")
        return folder

    def _repository(
        self, name: RepoName, on_progress: Say, check: Callable[[Mapping[str, Any]], object], moved: OnTransfer | None
    ) -> Path:
        hub = self.hub()
        here = hub.cached(name.repo, name.revision)
        if here is not None:
            return here
        check(self.reader.config(hub.fetch_config(name.repo, name.revision)))
        on_progress(f"{name} is not complete on this machine; asking the hub for the rest")
        return hub.fetch(name.repo, name.revision, on_progress, moved)

    def neither(self, model: str) -> str:
        """The refusal of a word that names no model."""
        shown = "".join(c if c.isprintable() else "?" for c in model[:200])
        return (
            f"{shown} is neither a folder, nor a repository such as owner/name, "
            f"nor one of {', '.join(self.package.names())}."
        )


def served_name(model: str, name: str) -> str:
    """The id clients see: the flag's, or the last part of what was asked for."""
    if name:
        return name
    last = Path(model).name or Path(model).resolve().name
    return last if "/" not in model else last.split("@")[0]
