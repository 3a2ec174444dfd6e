"""Files of a checkpoint may lie in its folder or in its hub cache's blobs, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorfold.application.checkpoint_links import stays_inside


def test_a_plain_file_and_a_link_within_the_folder_are_inside(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").symlink_to("a")
    assert stays_inside(str(tmp_path / "a")) and stays_inside(str(tmp_path / "b"))


def test_a_link_out_of_the_folder_is_not_inside(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "private").write_text("x")
    (folder / "chat_template.jinja").symlink_to("../private")
    assert not stays_inside(str(folder / "chat_template.jinja"))


def test_a_hub_caches_links_lead_to_its_own_blobs_alone(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1234"
    own, other = tmp_path / "models--a--b" / "blobs", tmp_path / "models--c--d" / "blobs"
    for folder in (snapshot, own, other):
        folder.mkdir(parents=True)
    (own / "1").write_text("x")
    (other / "2").write_text("x")
    (snapshot / "mine").symlink_to("../../blobs/1")
    (snapshot / "theirs").symlink_to(other / "2")
    assert stays_inside(str(snapshot / "mine")) and not stays_inside(str(snapshot / "theirs"))


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        stays_inside(str(tmp_path / "nothing"))
