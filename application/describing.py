"""What `info` and `models` tell: a model from its configuration files alone, and the families with what is here.

No weight is read and no backend is loaded. A family that this version does not serve yet is told in the same words, and
says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold.application.catalogue import ModelSources, RepoName, parse_repo
from tensorfold.application.checkpoint_parts import CONFIG, GENERATION, CheckpointParts
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families import dflash2
from tensorfold.domain.families.catalogue import (
    FAMILIES,
    Family,
    drafted_family,
    family_of,
    find_checkpoint,
    find_drafter,
    published_plan,
)
from tensorfold.domain.families.exl3_block import Exl3, parse_exl3
from tensorfold.domain.families.facts import Facts, State, drafter_parameters, drafter_state, facts
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.generation_defaults import GenerationDefaults, read_generation
from tensorfold.domain.families.listing import Runs, estimated_bytes, runs, side_files
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter, License
from tensorfold.domain.families.storage import Quantization, parse_quantization


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
    """One model. `backends` say who can run it; `exl3` is there instead of `quantization` for weights of that form.

    `weight_bytes` is an estimate, None where config.json does not tell widths.
    """

    model: str
    model_type: str
    family: Family
    plan: DecoderPlan
    facts: Facts
    weight_bytes: int | None
    quantization: Quantization | None
    exl3: Exl3 | None
    backends: tuple[Runs, ...]
    defaults: GenerationDefaults
    side_files: tuple[str, ...]
    here: Here
    license: License | None


@dataclass(frozen=True, slots=True)
class DescribedDrafter:
    """A drafter, and the family whose published model it fits; None, with no state, where it fits none."""

    model: str
    drafter: DFlashDrafter
    target: Family | None
    parameters: int
    state: State | None
    here: Here
    license: License | None


class Describer:
    """The use case over the sources of models."""

    def __init__(self, sources: ModelSources, parts: CheckpointParts) -> None:
        self._sources = sources
        self._parts = parts

    def describe(self, model: str) -> Described | DescribedDrafter:
        """A folder, a repository or a package's model, by its configuration files. Raises RefusedError."""
        config, generation, here = self._read(model)
        try:
            if dflash2.recognises(config):
                return _described_drafter(model, config, here)
            return _described(model, config, generation, here)
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


def _described(model: str, config: Mapping[str, Any], generation: Mapping[str, Any], here: Here) -> Described:
    family = family_of(config)
    # Only families with formats of their own are published in EXL3. Another format that is not read is refused.
    exl3 = parse_exl3(config) if family.reader.formats else None
    quantization = None if exl3 else parse_quantization(config)
    plan = family.reader.plan(config)
    return Described(
        model=model,
        model_type=plan.model_type,
        family=family,
        plan=plan,
        facts=facts(plan),
        weight_bytes=None if exl3 else estimated_bytes(plan, quantization),
        quantization=quantization,
        exl3=exl3,
        backends=runs(config),
        defaults=read_generation(generation, plan.head.vocabulary),
        side_files=side_files(config),
        here=here,
        license=_license(model),
    )


def _described_drafter(model: str, config: Mapping[str, Any], here: Here) -> DescribedDrafter:
    target = drafted_family(config)
    model_plan = published_plan(target) if target else None
    drafter = dflash2.plan(config, model_plan)
    state = drafter_state(drafter, model_plan) if model_plan else None
    return DescribedDrafter(model, drafter, target, drafter_parameters(drafter), state, here, _license(model))


def _license(model: str) -> License | None:
    repo = model.split("@")[0]
    listed = find_checkpoint(repo) or find_checkpoint(model)
    if listed is not None:
        return listed[1].license
    family = find_drafter(repo)
    return next((d.license for d in family.drafters if d.repo == repo), None) if family else None
