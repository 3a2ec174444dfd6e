"""What `info` and `models` tell: a model from its configuration files alone, and the families with what is here.

No weight is read and no backend is loaded. A family that this version does not serve yet is told from the plain fields
of its config.json, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold.application.catalogue import ModelSources, RepoName, parse_repo
from tensorfold.application.checkpoint_parts import CONFIG, GENERATION, CheckpointParts
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.catalogue import FAMILIES, Family, find, find_checkpoint, unknown
from tensorfold.domain.families.fields import ConfigError, Fields
from tensorfold.domain.families.generation_defaults import GenerationDefaults, read_generation
from tensorfold.domain.families.listing import Runs, estimated_bytes, experts, first_plan, runs, side_files
from tensorfold.domain.families.plans import License
from tensorfold.domain.families.storage import Quantization, parse_quantization

_MOST = 1 << 40
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes that a config states; None where it does not. `experts` 0: none. `weight_bytes` is an estimate."""

    layers: int | None
    width: int | None
    experts: int | None
    vocabulary: int | None
    window: int | None
    weight_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Here:
    """What of a model is on this machine: its folder, and the files that lack (empty: it is complete)."""

    folder: Path | None
    missing: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether it can be served without a download."""
        return self.folder is not None and not self.missing


@dataclass(frozen=True, slots=True)
class Described:
    """One model. `backends` say who can run it; `defaults` how it is sampled, None where its family is not served."""

    model: str
    model_type: str
    family: Family
    geometry: Geometry
    quantization: Quantization | None
    backends: tuple[Runs, ...]
    defaults: GenerationDefaults | None
    side_files: tuple[str, ...]
    here: Here
    license: License | None


class Describer:
    """The use case over the sources of models."""

    def __init__(self, sources: ModelSources, parts: CheckpointParts) -> None:
        self._sources = sources
        self._parts = parts

    def describe(self, model: str) -> Described:
        """A folder, a repository or a package's model, by its configuration files. Raises RefusedError."""
        config, generation, here = self._read(model)
        family = find(config.get("model_type"))
        if family is None:
            raise RefusedError(unknown(config))
        try:
            return _described(model, family, config, generation, here)
        except ConfigError as refusal:
            raise RefusedError(refusal.message) from None

    def here(self, name: str) -> Here:
        """What of a listed checkpoint or drafter is on this machine; asks no hub."""
        if name in self._sources.package.names():
            return Here(self._sources.package.ready(name))
        repo = parse_repo(name)
        return Here(None) if repo is None else self._repository(repo)

    def _read(self, model: str) -> tuple[Mapping[str, Any], Mapping[str, Any], Here]:
        reader, package = self._sources.reader, self._sources.package
        if model in package.names():
            return self._packaged(model)
        folder = Path(model).expanduser()
        if folder.is_dir():
            return reader.config(folder), reader.generation(folder), Here(folder, self._parts.missing(folder))
        repo = parse_repo(model)
        if repo is None:
            raise RefusedError(self._sources.neither(model))
        folder = self._sources.hub().fetch_config(repo.repo, repo.revision)
        return reader.config(folder), reader.generation(folder), self._repository(repo)

    def _packaged(self, model: str) -> tuple[Mapping[str, Any], Mapping[str, Any], Here]:
        folder = self._sources.package.ready(model)
        told = self._sources.package.describe(model)
        if told is None:
            raise RefusedError(f"{model} is not on this machine yet; `tensorfold pull {model}` brings it.")
        return (*told, Here(folder))

    def _repository(self, repo: RepoName) -> Here:
        folder = self._sources.hub().known(repo.repo, repo.revision)
        if folder is None or {path.name for path in folder.iterdir()} <= {CONFIG, GENERATION}:
            # Its configuration alone, as this command leaves it, is nothing to serve from.
            return Here(None)
        try:
            return Here(folder, self._parts.missing(folder))
        except RefusedError:
            return Here(None)


def checkpoints(family: Family) -> Sequence[str]:
    """Names that `pull` takes, of a family's listed checkpoints: a name for each branch that holds weights."""
    return [
        name if branch is None else f"{name}@{branch}"
        for name, branches in ((c.name, c.branches) for c in family.checkpoints)
        for branch in (branches or (None,))
    ]


def families() -> tuple[Family, ...]:
    """All listed families: those that are served first."""
    return tuple(sorted(FAMILIES, key=lambda family: not family.served))


def _described(
    model: str, family: Family, config: Mapping[str, Any], generation: Mapping[str, Any], here: Here
) -> Described:
    # A format that is not read is refused whoever serves the family.
    quantization = parse_quantization(config)
    defaults = None
    geometry = _stated(config)
    if family.served:
        plan = first_plan(config)
        weight_bytes = estimated_bytes(plan, quantization)
        defaults = read_generation(generation, plan.head.vocabulary)
        geometry = Geometry(
            len(plan.layers), plan.width, experts(plan), plan.embedding.vocabulary, plan.context, weight_bytes
        )
    listed = find_checkpoint(model.split("@")[0]) or find_checkpoint(model)
    return Described(
        model=model,
        model_type=str(config["model_type"]),
        family=family,
        geometry=geometry,
        quantization=quantization,
        backends=runs(config),
        defaults=defaults,
        side_files=side_files(config),
        here=here,
        license=listed[1].license if listed else None,
    )


def _stated(config: Mapping[str, Any]) -> Geometry:
    """The plain fields of any decoder's config, in the text part where there is one."""
    top = Fields(config)
    fields = top.group("text_config") or top

    def count(*names: str) -> int | None:
        return next((fields.integer(name, 0, _MOST) for name in names if fields.has(name)), None)

    return Geometry(
        count("num_hidden_layers"),
        count("hidden_size"),
        count(*_EXPERTS) or 0,
        count("vocab_size"),
        count("max_position_embeddings"),
    )
