"""Which file a template comes from, and the special tokens it is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.tokenization import tokenizer_config as adapter
from tensorfold.adapters.tokenization.tokenizer_config import read_tokenizer_config
from tensorfold.application.ports.checkpoints import RefusedError


def _folder(folder: Path, config: Any = None, jinja: str | None = None) -> Path:
    if config is not None:
        (folder / "tokenizer_config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    if jinja is not None:
        (folder / "chat_template.jinja").write_text(jinja)
    return folder


def test_the_jinja_file_wins_over_the_configuration(tmp_path: Path) -> None:
    config = read_tokenizer_config(_folder(tmp_path, {"chat_template": "OLD", "bos_token": "<s>"}, "NEW"))
    assert (config.templates, config.source) == ({"default": "NEW"}, "chat_template.jinja")
    assert config.variables == {"bos_token": "<s>"}


def test_each_file_alone_is_read(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    config = read_tokenizer_config(_folder(old, {"chat_template": "OLD"}))
    assert (config.templates, config.source) == ({"default": "OLD"}, "tokenizer_config.json")
    config = read_tokenizer_config(_folder(new, jinja="NEW"))
    assert (config.templates, config.source) == ({"default": "NEW"}, "chat_template.jinja")


def test_a_folder_without_a_template_says_none(tmp_path: Path) -> None:
    assert read_tokenizer_config(tmp_path).source == "none"
    assert read_tokenizer_config(_folder(tmp_path, {"chat_template": None})).source == "none"
    assert read_tokenizer_config(_folder(tmp_path, {"chat_template": []})).source == "none"


def test_named_templates_are_read_and_one_of_another_name_is_the_default(tmp_path: Path) -> None:
    named = [{"name": name, "template": name.upper()} for name in ("default", "tool_use", "rag")]
    templates = read_tokenizer_config(_folder(tmp_path, {"chat_template": named})).templates
    assert templates == {"default": "DEFAULT", "tool_use": "TOOL_USE"}
    templates = read_tokenizer_config(_folder(tmp_path, {"chat_template": named[1:2]})).templates
    assert templates == {"default": "TOOL_USE"}


def test_special_tokens_are_read_as_texts_and_as_objects(tmp_path: Path) -> None:
    stated = {
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "pad_token": None,
        "image_token": 5,
        "add_bos_token": True,
        "additional_special_tokens": ["<a>", {"content": "<b>"}, None],
    }
    assert read_tokenizer_config(_folder(tmp_path, stated)).variables == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "additional_special_tokens": ["<a>", "<b>"],
    }


@pytest.mark.parametrize(
    ("config", "jinja", "reason"),
    [
        ("{", None, "not JSON"),
        ("[" * 100_000, None, "not JSON"),
        ("[]", None, "JSON object"),
        ({"chat_template": 7}, None, "neither a text nor a list"),
        ({"chat_template": {"default": "x"}}, None, "neither a text nor a list"),
        ({"chat_template": [{"name": "default"}]}, None, "neither a text nor a list"),
        ({"chat_template": [{"name": n, "template": "x"} for n in "ab"]}, None, "none of them 'default'"),
        ({"chat_template": "x" * 2000}, None, "longer than"),
        (None, "x" * 2000, "larger than"),
    ],
)
def test_files_that_hold_something_else_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Any, jinja: str | None, reason: str
) -> None:
    monkeypatch.setattr(adapter, "TEMPLATE_LIMIT", 1000)
    with pytest.raises(RefusedError, match=reason) as refusal:
        read_tokenizer_config(_folder(tmp_path, config, jinja))
    assert str(tmp_path) in refusal.value.message
    assert "\n" not in refusal.value.message


def test_a_template_that_is_not_utf_8_is_refused_with_the_byte(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"{{ messages }}\xff")
    with pytest.raises(RefusedError, match="byte 14"):
        read_tokenizer_config(tmp_path)
