"""Which files of a repository are a checkpoint's, and what a folder lacks of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.checkpoint_parts import CONFIG, INDEX, SMALL, TOKENIZER, WEIGHTS, CheckpointParts, is_part
from tensorfold.application.ports.checkpoints import RefusedError
from tests.fakes.families import family_with_a_side_file
from tests.synthetic.servable import SERVABLE, write_servable

PARTS = CheckpointParts(FolderReader())
LLAMA = SERVABLE.config()


def listed(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


def servable(folder: Path, shards: int = 1) -> Path:
    folder.mkdir()
    return write_servable(folder, replace(SERVABLE, shards=shards))


@pytest.mark.parametrize("shards", [1, 3])
def test_a_whole_folder_lacks_nothing_and_its_files_are_all_named(tmp_path: Path, shards: int) -> None:
    folder = servable(tmp_path / "model", shards)
    (folder / "run.py").write_text("")
    (folder / "extra.safetensors").write_text("")
    names = listed(folder)
    first = PARTS.first("o/n", LLAMA, names)
    weights = PARTS.weights("o/n", folder, names)
    assert not set(first) & set(weights) and PARTS.missing(folder) == ()
    assert {*first, *weights} == set(names) - {"run.py", "extra.safetensors"}
    assert PARTS.size(folder) == sum(names[name] for name in (*first, *weights))


@pytest.mark.parametrize("name", [CONFIG, TOKENIZER])
def test_a_file_that_must_be_there_is_named(tmp_path: Path, name: str) -> None:
    names = listed(servable(tmp_path / "model"))
    del names[name]
    with pytest.raises(RefusedError, match=f"o/n lacks {name} on the hub, without which it cannot be served"):
        PARTS.first("o/n", LLAMA, names)


def test_what_a_folder_lacks_is_named_in_order(tmp_path: Path) -> None:
    folder = servable(tmp_path / "model", 3)
    for name in (TOKENIZER, "model-00002-of-00003.safetensors"):
        (folder / name).unlink()
    assert PARTS.missing(folder) == (TOKENIZER, "model-00002-of-00003.safetensors")
    (folder / INDEX).unlink()
    assert PARTS.missing(folder) == (TOKENIZER, WEIGHTS)


def test_a_link_to_nothing_lacks(tmp_path: Path) -> None:
    folder = servable(tmp_path / "model")
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to("nowhere")
    assert PARTS.missing(folder) == (WEIGHTS,)


def test_a_small_file_has_a_largest_size() -> None:
    for name, most in SMALL.items():
        names = {CONFIG: 1, TOKENIZER: 1, WEIGHTS: 1, name: most}
        assert name in PARTS.first("o/n", LLAMA, names)
        with pytest.raises(RefusedError, match=f"{name} of o/n has {most + 1:,} bytes, more than the {most:,}"):
            PARTS.first("o/n", LLAMA, names | {name: most + 1})


def test_many_missing_files_are_counted() -> None:
    names = {CONFIG: 1, TOKENIZER: 1, "model-00001-of-00012.safetensors": 1}
    with pytest.raises(RefusedError, match=r"model-00007-of-00012.safetensors and 5 more are not there"):
        PARTS.first("o/n", LLAMA, names)


def test_a_numbering_of_no_sense_or_of_other_files_is_left_to_the_index() -> None:
    names = {
        CONFIG: 1,
        TOKENIZER: 1,
        INDEX: 1,
        "model-00001-of-99999.safetensors": 1,
        "x-00001-of-00002.safetensors": 1,
    }
    assert INDEX in PARTS.first("o/n", LLAMA, names)
    del names[INDEX]
    with pytest.raises(RefusedError, match=r"x-00002-of-00002.safetensors is not there"):
        PARTS.first("o/n", LLAMA, names)


def test_an_unknown_family_is_whole_with_all_its_weights(tmp_path: Path) -> None:
    config = {"model_type": "drafter"}
    (tmp_path / CONFIG).write_text(json.dumps(config))
    names = {CONFIG: 1, "b.safetensors": 1, "a.safetensors": 1, "x.bin": 1, ".h.safetensors": 1}
    assert PARTS.first("o/n", config, names) == (CONFIG,)
    assert PARTS.weights("o/n", tmp_path, names) == ("a.safetensors", "b.safetensors")
    assert PARTS.missing(tmp_path) == (WEIGHTS,)
    (tmp_path / "w-00001-of-00002.safetensors").write_text("")
    assert PARTS.missing(tmp_path) == ("w-00002-of-00002.safetensors",)
    (tmp_path / "w-00002-of-00002.safetensors").write_text("12")
    assert PARTS.missing(tmp_path) == () and PARTS.size(tmp_path) == 2 + len(json.dumps(config))
    with pytest.raises(RefusedError, match="holds no safetensors file"):
        PARTS.weights("o/n", tmp_path, {CONFIG: 1, "x.bin": 1})


def test_a_side_file_that_the_family_names_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = servable(tmp_path / "model")
    family_with_a_side_file(monkeypatch, "mtp.safetensors")
    assert PARTS.missing(folder) == ("mtp.safetensors",)
    with pytest.raises(RefusedError, match=r"lacks mtp.safetensors on the hub"):
        PARTS.first("o/n", LLAMA, listed(folder))
    (folder / "mtp.safetensors").write_text("")
    assert PARTS.missing(folder) == ()
    assert PARTS.weights("o/n", folder, listed(folder)) == (WEIGHTS, "mtp.safetensors")


@given(st.text(max_size=30))
@settings(derandomize=True, deadline=None, max_examples=200)
@pytest.mark.slow
def test_no_name_with_a_path_or_of_code_is_ever_a_part(text: str) -> None:
    for name in (text, f"{text}.safetensors", f"{text}/model.safetensors", f"{text}.py"):
        if is_part(name):
            assert "/" not in name and "\\" not in name and not name.startswith(".") and "\0" not in name
            assert name.endswith((".safetensors", ".json", ".jinja"))


def test_values_of_any_kind_as_a_model_type_name_no_family() -> None:
    kinds: tuple[Any, ...] = (None, 7, [], {}, "x")
    for kind in kinds:
        assert PARTS.first("o/n", {"model_type": kind}, {CONFIG: 1}) == (CONFIG,)


def test_a_served_family_without_weights_lacks_them(tmp_path: Path) -> None:
    folder = servable(tmp_path / "model")
    with pytest.raises(RefusedError, match=r"lacks model.safetensors on the hub"):
        PARTS.weights("o/n", folder, {CONFIG: 1, TOKENIZER: 1, "pytorch_model.bin": 1})
