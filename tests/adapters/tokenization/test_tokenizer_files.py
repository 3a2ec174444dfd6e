"""Tokenizer files as hostile input: every bad one is refused in one sentence of ours."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.tokenization import tokenizer as adapter
from tensorfold.adapters.tokenization.tokenizer import load_tokenizer
from tensorfold.application.ports.checkpoints import RefusedError
from tests.adapters.tokenization.small_tokenizers import byte_level, saved

LIBRARY_WORDS = ("Traceback", "Exception", "serde", "panicked", "at line", "column", "NoneType")


def _refusal(folder: Path) -> str:
    with pytest.raises(RefusedError) as refusal:
        load_tokenizer(folder)
    message = refusal.value.message
    assert "\n" not in message and message.endswith(".")
    assert not any(word in message for word in LIBRARY_WORDS)
    return message


def _file(**model: Any) -> str:
    file = json.loads(byte_level().to_str())
    file["model"] |= model
    return json.dumps(file)


def _changed(**parts: Any) -> str:
    return json.dumps(json.loads(byte_level().to_str()) | parts)


BAD: dict[str, tuple[Callable[[], str], str]] = {
    "empty file": (lambda: "", "not a tokenizer"),
    "cut JSON": (lambda: byte_level().to_str()[:500], "not a tokenizer"),
    "a web page": (lambda: "<!doctype html><title>404</title>", "not a tokenizer"),
    "a list": (lambda: "[]", "not a tokenizer"),
    "an empty object": (lambda: "{}", "not a tokenizer"),
    "endless nesting": (lambda: "[" * 200_000, "not a tokenizer"),
    "unknown model": (lambda: _file(type="Pickle"), "not a tokenizer"),
    "ids that are text": (lambda: _file(vocab={"a": "0"}, merges=[]), "not a tokenizer"),
    "negative ids": (lambda: _file(vocab={"a": -1}, merges=[]), "not a tokenizer"),
    "merges of tokens that are not there": (lambda: _file(merges=[["a", "no such"]]), "not a tokenizer"),
    "an id in the billions": (lambda: _file(vocab={"a": 0, "b": 4_294_967_295}, merges=[]), "4294967295"),
    "one id for two tokens": (lambda: _file(vocab={"a": 7, "b": 7}, merges=[]), "id 7 "),
    "no tokens": (lambda: _empty(), "no tokens"),
    "a text with many ids": (lambda: _file(dropout=0.5), "dropout"),
    "a broken pattern": (
        lambda: _changed(
            pre_tokenizer={"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": False}
        ),
        "not a tokenizer",
    ),
    "a broken character map": (
        lambda: _changed(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "Precompiled",
    ),
    "an unknown decoder": (lambda: _changed(decoder={"type": "Shell"}), "not a tokenizer"),
}


def _empty() -> str:
    file = json.loads(byte_level().to_str()) | {"added_tokens": [], "post_processor": None}
    file["model"] |= {"vocab": {}, "merges": []}
    return json.dumps(file)


@pytest.mark.parametrize("name", BAD)
@pytest.mark.slow
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, name: str) -> None:
    text, reason = BAD[name]
    (tmp_path / "tokenizer.json").write_text(text(), encoding="utf-8")
    message = _refusal(tmp_path)
    assert "tokenizer.json" in message
    assert re.search(reason, message), message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "is missing" in _refusal(tmp_path)


def test_a_file_over_the_limit_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, byte_level())
    monkeypatch.setattr(adapter, "FILE_LIMIT", 1 << 10)
    assert "larger than" in _refusal(tmp_path)


def test_a_pipe_or_a_folder_in_the_files_place_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tokenizer.json")
    assert "not a regular file" in _refusal(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.json").mkdir()
    assert "make it a regular, readable file" in _refusal(tmp_path)


def test_a_failure_inside_the_library_is_a_plain_value_error(tmp_path: Path) -> None:
    class Panic(BaseException):
        """As the library's own: no Exception."""

    class Broken:
        def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> None:
            raise Panic("thread panicked")

    tokenizer = load_tokenizer(saved(tmp_path, byte_level()))
    tokenizer._library = Broken()  # type: ignore[assignment]
    with pytest.raises(ValueError, match="failed on a text of 3 characters"):
        tokenizer.encode("abc")
