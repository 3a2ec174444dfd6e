"""Families that the catalogue holds for one test alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensorfold.domain.families import catalogue
from tensorfold.domain.families.catalogue import Family
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.tensors import SideFile


def family_to_come(patch: pytest.MonkeyPatch, family: Family) -> Family:
    """Until the test ends, no backend of this version serves a family: what the catalogue then holds of it."""
    later = replace(family, served_on=())
    patch.setattr(catalogue, "FAMILIES", tuple(later if f is family else f for f in catalogue.FAMILIES))
    return later


def family_with_a_side_file(patch: pytest.MonkeyPatch, name: str) -> None:
    """Until the test ends, every Llama needs a weight file of that name beside its shards."""
    llama = catalogue.LLAMA
    assert llama.reader is not None
    plain = llama.reader.plan

    def plan(config: Any) -> DecoderPlan:
        made = plain(config)
        return replace(made, tensors=replace(made.tensors, side_files=(SideFile(name, "mtp."),)))

    asking = replace(llama, reader=replace(llama.reader, plan=plan))
    patch.setattr(catalogue, "FAMILIES", tuple(asking if f is llama else f for f in catalogue.FAMILIES))
