"""The draft model beside a model: which one is meant, where it is, whether it fits. No weight of it is read.

`auto` never fetches and never refuses: a server that would start without a drafter starts. A drafter that is named is
fetched where it is missing, and refused when it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorfold.application.catalogue import ModelSources, OnTransfer, parse_repo
from tensorfold.application.ports.backend import DrafterCheckpoint
from tensorfold.application.ports.checkpoints import CheckpointReader, RefusedError
from tensorfold.domain.families import dflash2
from tensorfold.domain.families.binding import bind
from tensorfold.domain.families.catalogue import Family
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.families.storage import parse_quantization

AUTO, NONE = "auto", "none"
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Drafters:
    """Finds the drafter of a model."""

    models: ModelSources
    reader: CheckpointReader

    def find(
        self,
        asked: str,
        family: Family,
        plan: DecoderPlan,
        say: Say,
        on_transfer: OnTransfer | None = None,
    ) -> DrafterCheckpoint | None:
        """The drafter that `asked` (`auto`, `none`, a folder or a repository) means for a model of `family`.

        Raises RefusedError for one that was named and cannot draft for `plan`; of the family's own, `say` tells.
        """
        if asked == NONE:
            return None
        if asked == AUTO:
            return self._own(family, plan, say)
        if not Path(asked).expanduser().is_dir() and parse_repo(asked) is None:
            shown = "".join(c if c.isprintable() else "?" for c in asked[:200])
            raise RefusedError(
                f"--drafter {shown} is neither auto, none, a folder, nor a repository such as owner/name."
            )
        folder = self.models.locate(
            asked, say, check=lambda config: _fitting(config, plan, asked), on_transfer=on_transfer
        )
        return self._described(asked, folder, plan)

    def _own(self, family: Family, plan: DecoderPlan, say: Say) -> DrafterCheckpoint | None:
        """The first of the family's listed drafters that is whole on this machine."""
        for listed in family.drafters:
            folder = self.models.hub().cached(listed.repo, None)
            if folder is None:
                continue
            try:
                return self._described(listed.repo, folder, plan)
            except RefusedError as refusal:
                say(f"{refusal.message} It is left out.")
        return None

    def _described(self, name: str, folder: Path, plan: DecoderPlan) -> DrafterCheckpoint:
        drafter = _fitting(self.reader.config(folder), plan, name)
        facts = self.reader.facts(folder)
        try:
            bound = bind(drafter.tensors, facts.tensors, parse_quantization(facts.config))
        except ConfigError as refusal:
            raise _refused(name, refusal) from None
        return DrafterCheckpoint(name, drafter, bound, facts)


def _fitting(config: Mapping[str, Any], plan: DecoderPlan, name: str) -> DFlashDrafter:
    try:
        return dflash2.plan(config, plan)
    except ConfigError as refusal:
        raise _refused(name, refusal) from None


def _refused(name: str, refusal: ConfigError) -> RefusedError:
    return RefusedError(f"The drafter {name} cannot be used: {refusal.message}")
