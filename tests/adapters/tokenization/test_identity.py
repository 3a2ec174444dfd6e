"""The tokenizer's identity: equal for two spellings of one tokenizer, different when a text may get other ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.tokenization.identity import record_identity, tokenizer_identity
from tensorfold.adapters.tokenization.tokenizer import load_tokenizer
from tests.adapters.tokenization.small_tokenizers import byte_level, saved, sentencepiece

File = dict[str, Any]


def _file() -> File:
    file: File = json.loads(byte_level().to_str())
    return file


def _changed(change: Callable[[File], Any]) -> str:
    file = _file()
    change(file)
    return tokenizer_identity(file)


SAME: dict[str, Callable[[File], Any]] = {
    "truncation": lambda f: f.update(truncation={"max_length": 5}),
    "padding": lambda f: f.update(padding={"length": 5}),
    "decoder": lambda f: f.update(decoder={"type": "Fuse"}),
    "version": lambda f: f.update(version="2.0"),
    "merges as texts": lambda f: f["model"].update(merges=[" ".join(merge) for merge in f["model"]["merges"]]),
    "an absent option": lambda f: f["model"].pop("ignore_merges", None),
    "an option at its neutral value": lambda f: f["model"].update(end_of_word_suffix=""),
    "the order of the vocabulary": lambda f: f["model"].update(vocab=dict(reversed(f["model"]["vocab"].items()))),
    "the order of added tokens": lambda f: f["added_tokens"].reverse(),
}
OTHER: dict[str, Callable[[File], Any]] = {
    "an id": lambda f: f["model"]["vocab"].update({"a": 9999}),
    "a token": lambda f: f["model"]["vocab"].update({"new": 9999}),
    "two ids swapped": lambda f: f["model"]["vocab"].update(a=f["model"]["vocab"]["b"], b=f["model"]["vocab"]["a"]),
    "the order of merges": lambda f: f["model"]["merges"].reverse(),
    "a merge less": lambda f: f["model"]["merges"].pop(),
    "an added token": lambda f: f["added_tokens"].pop(),
    "an added token's match": lambda f: f["added_tokens"][0].update(lstrip=True),
    "normalizer": lambda f: f.update(normalizer={"type": "NFC"}),
    "pre-tokenizer": lambda f: f["pre_tokenizer"].update(add_prefix_space=True),
    "post-processor": lambda f: f.update(post_processor=None),
    "a model option": lambda f: f["model"].update(ignore_merges=True),
}


# What may change which ids a text gets, and leaves alone what the ids mean.
CUT_ELSEWHERE = ("normalizer", "pre-tokenizer", "post-processor", "a model option", "an added token's match")


def _record(change: Callable[[File], Any]) -> str:
    file = _file()
    change(file)
    return record_identity(file)


@pytest.mark.parametrize("what", SAME)
def test_what_changes_no_id_does_not_change_the_identity(what: str) -> None:
    assert _changed(SAME[what]) == tokenizer_identity(_file())


@pytest.mark.parametrize("what", OTHER)
def test_what_may_change_an_id_changes_the_identity(what: str) -> None:
    assert _changed(OTHER[what]) != tokenizer_identity(_file())


@pytest.mark.parametrize("what", [*SAME, *CUT_ELSEWHERE])
def test_what_leaves_ids_their_meaning_leaves_a_record_its_digest(what: str) -> None:
    assert _record((SAME | OTHER)[what]) == record_identity(_file())


@pytest.mark.parametrize("what", [what for what in OTHER if what not in CUT_ELSEWHERE])
def test_what_gives_ids_another_meaning_gives_a_record_another_digest(what: str) -> None:
    assert _record(OTHER[what]) != record_identity(_file())


def test_whether_an_added_token_is_special_is_part_of_a_records_digest() -> None:
    assert _record(lambda f: f["added_tokens"][0].update(special=False)) != record_identity(_file())
    assert _record(lambda f: f["added_tokens"][0].update(content="<|other|>")) != record_identity(_file())


def test_a_loaded_tokenizer_states_its_files_identity_however_often_it_is_asked(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(saved(tmp_path, byte_level()))
    assert tokenizer.identity == tokenizer.identity == tokenizer_identity(_file())
    assert tokenizer.record_digest == tokenizer.record_digest == record_identity(_file()) != tokenizer.identity
    assert len(tokenizer.identity) == 64
    assert load_tokenizer(saved(tmp_path, sentencepiece())).identity != tokenizer.identity


def test_a_unigram_vocabulary_has_an_identity_too() -> None:
    file = _file() | {"model": {"type": "Unigram", "vocab": [["a", 0.0], ["b", -1.0]], "unk_id": 0}}
    swapped = _file() | {"model": {"type": "Unigram", "vocab": [["b", -1.0], ["a", 0.0]], "unk_id": 0}}
    assert tokenizer_identity(file) != tokenizer_identity(swapped)
    assert record_identity(file) != record_identity(swapped)
    scored = _file() | {"model": {"type": "Unigram", "vocab": [["a", -2.0], ["b", -3.0]], "unk_id": 0}}
    assert record_identity(file) == record_identity(scored)


def test_a_vocabulary_without_merges_has_a_records_digest(tmp_path: Path) -> None:
    words = {"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}}, "added_tokens": None}
    assert len(record_identity(words)) == 64
    assert load_tokenizer(saved(tmp_path, sentencepiece())).record_digest != record_identity(words)
