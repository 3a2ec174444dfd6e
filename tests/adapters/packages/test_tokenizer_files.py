"""The written tokenizer gives the ids of the GGUF file's own rules, and what it does not know is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tensorfold.adapters.packages.tokenizer_files import TokenizerSource
from tensorfold.application.ports.checkpoints import RefusedError
from tests.adapters.packages.gguf_samples import MERGES, SPECIAL, Llama, tokens
from tests.adapters.packages.reference_bpe import ReferenceTokenizer

PRE_TOKENIZERS = {"smollm": True, "gpt-2": False}


def source(**changes: Any) -> TokenizerSource:
    """The tiny tokenizer with metadata changes; `None` drops a key."""
    keys = {f"tokenizer.{'' if key == 'chat_template' else 'ggml.'}{key}": item for key, item in changes.items()}
    model = Llama(changes=keys)
    return TokenizerSource(model.metadata(), len(model.vocabulary), "model.gguf")


def written(**changes: Any) -> Tokenizer:
    return Tokenizer.from_str(json.dumps(source(**changes).tokenizer_object()))


CHARACTERS = "hello world 0129²٣Ⅷ'stdé\n\t\u3000\xa0.,!?<|>-_數😀\u0301\u200d"
WORDS = [*SPECIAL, " ", "hello", "it's", "12", "\n\n"]


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
@settings(derandomize=True, deadline=None, max_examples=300)
@given(
    text=st.text(st.sampled_from(CHARACTERS), max_size=40) | st.lists(st.sampled_from(WORDS), max_size=8).map("".join)
)
@pytest.mark.slow
def test_ids_equal_those_of_the_definition_and_decode_back(pre: str, text: str) -> None:
    library = written(pre=pre)
    reference = ReferenceTokenizer(tokens(), MERGES, SPECIAL, single_digits=PRE_TOKENIZERS[pre])
    ids = library.encode(text).ids
    assert ids == reference.encode(text)
    assert library.decode(ids, skip_special_tokens=False) == text


def test_numbers_are_cut_into_digits_only_where_the_file_says_so() -> None:
    assert written(pre="smollm").encode("12").tokens == ["1", "2"]
    assert written(pre="gpt-2").encode("12").tokens == ["12"]


def test_a_byte_without_a_token_is_dropped() -> None:
    vocabulary = [token for token in tokens() if token != "é"]
    merges = [merge for merge in MERGES if merge != "Ã ©"]
    model = Llama(vocabulary=vocabulary, changes={"tokenizer.ggml.merges": merges})
    metadata = model.metadata()
    made = TokenizerSource(metadata, len(vocabulary), "model.gguf").tokenizer_object()
    library = Tokenizer.from_str(json.dumps(made))
    reference = ReferenceTokenizer(vocabulary, merges, SPECIAL, single_digits=True)
    text = "h\u90e9i"  # its UTF-8 has the byte 0xE9, which the byte alphabet spells é
    assert library.encode(text).ids == reference.encode(text)
    assert len(library.encode(text).ids) == len(text.encode()) - 1


def test_control_tokens_are_special_and_user_defined_ones_are_not() -> None:
    kinds = [3 if token in SPECIAL else 1 for token in tokens()]
    kinds[tokens().index("hello"[:2])] = 4
    added = source(token_type=kinds).tokenizer_object()["added_tokens"]
    assert [(entry["content"], entry["special"]) for entry in added] == [*((t, True) for t in SPECIAL), ("he", False)]


@pytest.mark.parametrize(("asked", "around"), [((), (0, 0)), (("bos",), (1, 0)), (("eos",), (0, 1)),
                                                (("bos", "eos"), (1, 1))])  # fmt: skip
def test_the_file_says_which_tokens_stand_around_a_text(asked: tuple[str, ...], around: tuple[int, int]) -> None:
    library = written(**{f"add_{name}_token": True for name in asked})
    plain = written().encode("hello", add_special_tokens=False).ids
    assert library.encode("hello").ids == [1] * around[0] + plain + [2] * around[1]
    assert library.encode("hello", add_special_tokens=False).ids == plain
    pair = library.encode("hello", "hello").ids
    assert pair == [1] * around[0] + plain + [2] * around[1] + plain


def test_the_configuration_names_special_tokens_and_the_template() -> None:
    config = source(unknown_token_id=0).config_object(128)
    assert (config["bos_token"], config["eos_token"], config["pad_token"]) == (SPECIAL[1], SPECIAL[2], SPECIAL[2])
    assert config["unk_token"] == SPECIAL[0]
    assert config["chat_template"] == "{{ messages }}"
    assert config["model_max_length"] == 128
    bare = source(chat_template=None, bos_token_id=None).config_object(128)
    assert "chat_template" not in bare
    assert "bos_token" not in bare


def test_a_file_without_token_types_has_only_normal_tokens() -> None:
    assert source(token_type=None).tokenizer_object()["added_tokens"] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "llama"}, "the tokenizer 'llama'; only gpt2"),
        ({"model": None}, "the tokenizer None"),
        ({"pre": "llama-bpe"}, "the pre-tokenizer 'llama-bpe'; only gpt-2, smollm"),
        ({"pre": ["smollm"]}, "the pre-tokenizer"),
        ({"tokens": None}, "no list tokenizer.ggml.tokens"),
        ({"tokens": "text"}, "no list tokenizer.ggml.tokens"),
        ({"tokens": [1, 2]}, "an entry in tokenizer.ggml.tokens that is no text"),
        ({"tokens": ["", "a"]}, "an entry in tokenizer.ggml.tokens that is no text"),
        ({"tokens": ["a", "b"]}, "distinct tokens, one for each row"),
        ({"tokens": ["a"] * len(tokens())}, "distinct tokens, one for each row"),
        ({"token_type": [1]}, "one tokenizer.ggml.token_type for each token"),
        ({"token_type": "text"}, "one tokenizer.ggml.token_type for each token"),
        ({"token_type": [6] * len(tokens())}, "a type other than normal"),
        ({"merges": None}, "no list tokenizer.ggml.merges"),
        ({"merges": ["he"]}, "the merge 'he', which does not join"),
        ({"merges": ["h e l"]}, "the merge 'h e l', which does not join"),
        ({"merges": ["x y"]}, "the merge 'x y', which does not join"),
        ({"merges": ["zz he"]}, "the merge 'zz he', which does not join"),
        ({"eos_token_id": 1 << 20}, "the eos_token_id 1048576, which is no token"),
        ({"bos_token_id": True}, "the bos_token_id True, which is no token"),
        ({"add_bos_token": True, "bos_token_id": None}, "asks for a token around each text"),
    ],
)
def test_what_is_not_converted_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        source(**changes).tokenizer_object()
    assert words in refused.value.message
    assert refused.value.message.startswith("model.gguf ")
