"""The page of families tells what the plans say."""

from __future__ import annotations

from tensorfold.domain.families.catalogue import FAMILIES
from tests.domain.families.families_page import tables
from tests.tree import ROOT

PAGE = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_plans() -> None:
    between = PAGE.split("<!-- families -->\n\n")[1].split("\n\n<!-- end of families -->")[0]
    assert between == tables()


def test_the_page_names_every_listed_checkpoint_and_every_sentence_that_restricts_use() -> None:
    for family in FAMILIES:
        assert f"## {family.title}" in PAGE
        for checkpoint in family.checkpoints:
            assert f"`{checkpoint.name}`" in PAGE
            assert all(f"`{branch}`" in PAGE for branch in checkpoint.branches)
        for drafter in family.drafters:
            assert f"`{drafter.repo}`" in PAGE
            assert drafter.license.special in PAGE
