"""Downloads checkpoints ahead of time: config.json first, then what it rules out, then the rest.

Knows no hub and prints nothing. A repository that is refused costs its config.json alone; one whose family is not known
here is taken, since it may be a drafter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold.application.catalogue import ModelSources, OnTransfer, RepoName, Say, parse_repo
from tensorfold.application.checkpoint_notes import notes
from tensorfold.application.checkpoint_parts import CheckpointParts
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families import dflash2
from tensorfold.domain.families.catalogue import drafted_family, find, find_drafter, served
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.listing import check_served, side_files
from tensorfold.domain.families.storage import parse_quantization


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model that is whole on this machine: its folder, its bytes, its family's title and what else to say."""

    name: str
    folder: Path
    size: int
    family: str
    notes: tuple[str, ...]


class Puller:
    """The use case over the sources of models."""

    def __init__(self, sources: ModelSources, parts: CheckpointParts) -> None:
        self._sources = sources
        self._parts = parts

    def check_names(self, models: Sequence[str]) -> None:
        """Refuse words that name no repository before anything is fetched. Raises RefusedError."""
        for model in models:
            if model not in self._sources.package.names() and parse_repo(model) is None:
                raise RefusedError(
                    f"{model!r:.200} is not a repository such as owner/name or owner/name@revision, nor one of "
                    f"{', '.join(self._sources.package.names())}; nothing was downloaded."
                )

    def pull(self, model: str, on_progress: Say, on_transfer: OnTransfer | None = None) -> Pulled:
        """Fetch what is missing of one model. Raises RefusedError with one sentence."""
        name = parse_repo(model)
        if name is None or model in self._sources.package.names():
            folder = self._sources.package.provide(model, on_progress)
        else:
            hub = self._sources.hub()
            self._check(name, self._sources.reader.config(hub.fetch_config(name.repo, name.revision)))
            folder = hub.fetch(name.repo, name.revision, on_progress, on_transfer)
        config = self._sources.reader.config(folder)
        family = find(config.get("model_type"))
        sides = (f"{side} is there" for side in side_files(config))
        told = (*sides, *notes(model if name is None else name.repo, config))
        return Pulled(model, folder, self._parts.size(folder), family.title if family else "", told)

    def _check(self, name: RepoName, config: Mapping[str, Any]) -> None:
        try:
            if dflash2.recognises(config):
                dflash2.plan(config)
            drafts_for = find_drafter(name.repo) or drafted_family(config)
            if drafts_for is not None and not drafts_for.served:
                raise ConfigError(
                    f"{name} drafts for {drafts_for.title}, which is not part of this version; it serves: {served()}."
                )
            if find(config.get("model_type")) is not None:
                check_served(str(name), config)
            parse_quantization(config)
        except ConfigError as refusal:
            raise RefusedError(refusal.message) from None
