"""What is said of a repository that is taken: what nobody has measured, and terms that restrict its use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tensorfold.domain.families import dflash2
from tensorfold.domain.families.catalogue import drafted_family, find, find_checkpoint, find_drafter
from tensorfold.domain.families.fields import shown
from tensorfold.domain.families.plans import License


def notes(repo: str, config: Mapping[str, Any]) -> Iterator[str]:
    """Sentences without an end, for a repository (owner/name) and its config.json."""
    if dflash2.recognises(config):
        target = drafted_family(config)
        yield f"it is a DFlash2 drafter for {target.title if target else 'no model listed here'}"
    elif find(config.get("model_type")) is None:
        yield f"its model_type {shown(config.get('model_type'))} is no family of this version; it may be a drafter"
    elif find_checkpoint(repo) is None:
        yield "it is not on the list of tested checkpoints: it runs, and exactly, but its speed was not measured"
    terms = special_terms(repo)
    if terms is not None:
        yield f"licence: {terms.name}. {terms.special.removesuffix('.')}"


def special_terms(repo: str) -> License | None:
    """The licence of a listed checkpoint or drafter whose terms restrict its use."""
    listed, family = find_checkpoint(repo), find_drafter(repo)
    licenses = [listed[1].license] if listed else []
    licenses += [drafter.license for drafter in family.drafters if drafter.repo == repo] if family else []
    return next((terms for terms in licenses if terms.special), None)
