"""The command and a loopback hub: every refusal in one line after the configuration alone, every download whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.end_to_end.hub_place import Figures
from tests.end_to_end.hub_refusals import REFUSALS, Refusal, refuse
from tests.end_to_end.hub_scenes import SCENES

ASKED = [(refusal, command) for refusal in REFUSALS for command in refusal.commands]


@pytest.mark.parametrize(("refusal", "command"), ASKED, ids=str)
@pytest.mark.slow
def test_a_model_is_refused_in_one_line_before_its_weights(refusal: Refusal, command: str, tmp_path: Path) -> None:
    figures = Figures()
    refuse(refusal, command, tmp_path, figures)
    assert (figures.faults, figures.weight_bytes) == ([], 0)
    assert figures.config_only == (not refusal.asks)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_download_ends_whole(scene: Callable[[Path, Figures], None], tmp_path: Path) -> None:
    figures = Figures()
    scene(tmp_path, figures)
    assert (figures.faults, figures.twice) == ([], 0)
