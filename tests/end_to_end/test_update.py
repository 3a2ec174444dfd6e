"""`tensorfold update` and the release check as a user meets them, against a site on loopback and scratch clones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.update_scenes import SCENES, Scene


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_of_releases_it_holds_that(scene: Scene, tmp_path: Path) -> None:
    assert scene(tmp_path) > 0
