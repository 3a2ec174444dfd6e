"""Bad folders end the command in one line, and hostile requests never end the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.bad_folders import (
    RENDERER_BYTES,
    SPARE_BYTES,
    BadFolder,
    folders,
    refused_apart,
    refused_here,
    serve_template,
)
from tests.end_to_end.commands import as_process
from tests.end_to_end.crowd import residue
from tests.end_to_end.hostile_requests import besiege, bodies, heads
from tests.end_to_end.residue import held

pytestmark = pytest.mark.slow

FOLDERS = list(folders())
FILES = [folder for folder in FOLDERS if folder.kind != "template"]
SAMPLE = [folder for folder in FILES if folder.name in ("header_blanks", "index_traversal", "an id in the billions")]
TEMPLATES = [folder for folder in FOLDERS if folder.name in ("doubling string", "unclosed block", "including a file")]


def test_every_bad_checkpoint_and_tokenizer_is_refused_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    # Libraries start threads of their own when they are first used; these stay.
    assert refused_here(FILES[-1], tmp_path, "serve").misses() == []
    before = held()
    tried = [refused_here(folder, tmp_path, "serve") for folder in FILES]
    tried += [refused_here(folder, tmp_path, "verify") for folder in FILES[::4]]
    assert [line for one in tried for line in one.misses()] == []
    assert len(tried) > 140
    assert residue(before) == []


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Memory of the command that refuses a folder which is not there."""
    home = tmp_path_factory.mktemp("bare")
    return as_process(["serve", str(home / "nowhere"), "--port", "0"], home).peak_bytes


@pytest.mark.parametrize("folder", SAMPLE, ids=str)
def test_a_bad_folder_takes_bounded_memory_and_leaves_no_process(folder: BadFolder, tmp_path: Path, bare: int) -> None:
    assert refused_apart(folder, tmp_path, "serve", bare + SPARE_BYTES).misses() == []


@pytest.mark.parametrize("folder", TEMPLATES, ids=str)
def test_a_bad_template_is_refused_at_the_start_or_at_each_chat(folder: BadFolder, tmp_path: Path, bare: int) -> None:
    tried = serve_template(folder, tmp_path, max(bare, RENDERER_BYTES) + SPARE_BYTES)
    assert tried.misses() == []
    assert tried.late == (folder.name == "including a file")


def test_hostile_bodies_are_answered_in_form_and_the_next_request_is_served() -> None:
    seen = besiege(bodies(), halves=40)
    assert seen.misses() == []
    assert seen.tried > 30


def test_hostile_heads_are_answered_in_form_and_the_next_request_is_served() -> None:
    seen = besiege(heads(), halves=0)
    assert seen.misses() == []
    assert seen.tried > 15
