"""The tokenizer adapter on tokenizers built here: ids, bytes of ids, and text back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders

from tensorfold.adapters.tokenization.byte_alphabet import spelled_bytes
from tensorfold.adapters.tokenization.token_proof import prove_bytes
from tensorfold.adapters.tokenization.token_table import TokenTable
from tensorfold.adapters.tokenization.tokenizer import CheckpointTokenizer, joined, load_tokenizer
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tests.adapters.tokenization.small_tokenizers import byte_level, metaspace, saved, sentencepiece

LOSSLESS = {"byte level": byte_level, "sentencepiece": sentencepiece}
BUILDERS = {**LOSSLESS, "metaspace": metaspace}
TEXTS = (
    "the dog",
    " the  dog ",
    "    indented\n\ttab",
    "naïve façade, příliš žluťoučký",
    "数学と科学",
    "😀 👩‍👩‍👧 café",
    "",
)


Pair = tuple[CheckpointTokenizer, Tokenizer]


@pytest.fixture(scope="module", params=LOSSLESS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    library = LOSSLESS[request.param]()
    return load_tokenizer(saved(tmp_path_factory.mktemp("tokenizer"), library)), library


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_becomes_the_librarys_ids_and_comes_back(pair: Pair, text: str) -> None:
    tokenizer, library = pair
    ids = tokenizer.encode(text)
    assert ids == library.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=False) == text


@settings(derandomize=True, deadline=None, max_examples=60)
@given(text=st.text(max_size=40))
@pytest.mark.slow
def test_any_text_comes_back_from_the_bytes_of_its_ids(pair: Pair, text: str) -> None:
    tokenizer, _ = pair
    assert joined(tokenizer.token_bytes, tokenizer.encode(text)) == text.encode()


@settings(derandomize=True, deadline=None, max_examples=60)
@given(data=st.data())
def test_bytes_of_any_ids_decode_as_the_library_does_when_they_are_text(pair: Pair, data: st.DataObject) -> None:
    tokenizer, library = pair
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocabulary - 1), max_size=12))
    try:
        text = joined(tokenizer.token_bytes, ids).decode()
    except UnicodeDecodeError:
        return
    assert library.decode(ids, skip_special_tokens=False) == text


def test_bytes_cut_inside_a_character_show_one_replacement(pair: Pair) -> None:
    tokenizer, _ = pair
    ids = [token for token in range(tokenizer.vocabulary) if tokenizer.token_bytes.table[token] in (b"\xf0", b"\x9f")]
    assert tokenizer.decode(sorted(ids, key=lambda token: -tokenizer.token_bytes.table[token][0])) == "\ufffd"


def test_a_metaspace_decoder_joins_with_the_first_space_dropped(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(saved(tmp_path, metaspace()))
    ids = tokenizer.encode("the dog the")
    assert tokenizer.token_bytes.rule == "strip_first_space"
    assert [tokenizer.token_bytes.of(token) for token in ids] == [b" the", b" dog", b" the"]
    assert tokenizer.decode(ids) == "the dog the"


def test_special_tokens_in_a_text_become_their_ids_and_show_nothing_in_a_reply(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(saved(tmp_path, byte_level()))
    start, think = tokenizer.token_id("<|start|>"), tokenizer.token_id("<think>")
    ids = tokenizer.encode("<|start|>the<think>")
    assert (ids[0], ids[-1]) == (start, think)
    assert start is not None and think is not None
    assert (tokenizer.token_bytes.of(start), tokenizer.token_bytes.of(think)) == (b"", b"<think>")
    assert tokenizer.decode(ids) == "<|start|>the<think>"


def test_no_token_is_added_unless_asked_for(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(saved(tmp_path, byte_level()))
    plain = tokenizer.encode("the dog")
    assert tokenizer.encode("the dog", add_special_tokens=True) == [tokenizer.token_id("<|start|>"), *plain]


@pytest.mark.parametrize(
    ("text", "read_as"),
    [("\ud83d", "\ufffd"), ("a\ude00b\ud83d", "a\ufffdb\ufffd"), ("\ud83d\ude00", "😀")],
)
def test_unpaired_surrogates_are_read_as_replacement_characters(tmp_path: Path, text: str, read_as: str) -> None:
    tokenizer = load_tokenizer(saved(tmp_path, byte_level()))
    assert tokenizer.decode(tokenizer.encode(text)) == read_as


def test_ids_outside_the_table_and_unknown_tokens_are_no_text(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(saved(tmp_path, byte_level()))
    assert tokenizer.decode([-1, 10**9]) == ""
    assert tokenizer.token_id("no such token") is None
    assert tokenizer.token_id("\ud83d") is None


def test_the_vocabulary_reaches_over_holes_to_the_largest_id(tmp_path: Path) -> None:
    file = json.loads(byte_level().to_str())
    model = file["model"]
    model["vocab"]["unreachable"] = 1000
    tokenizer = load_tokenizer(saved(tmp_path, byte_level(), model=model))
    assert tokenizer.vocabulary == 1001 == len(tokenizer.token_bytes.table)
    assert tokenizer.token_bytes.table[999:] == (b"", b"unreachable")


def test_an_added_token_outside_the_byte_alphabet_keeps_its_own_text(tmp_path: Path) -> None:
    library = byte_level()
    library.add_tokens([AddedToken("two words", normalized=False), AddedToken("数 x", normalized=False)])
    tokenizer = load_tokenizer(saved(tmp_path, library))
    assert tokenizer.decode(tokenizer.encode("the two words, 数 x")) == "the two words, 数 x"


def test_truncation_and_padding_in_the_file_are_not_applied(tmp_path: Path) -> None:
    library = byte_level()
    library.enable_truncation(2)
    library.enable_padding(length=64)
    tokenizer = load_tokenizer(saved(tmp_path, library))
    text = "the quick brown fox jumps"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_threads_encoding_and_decoding_at_once_get_their_own_texts(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(saved(tmp_path, byte_level()))
    wrong: list[str] = []

    def work(number: int) -> None:
        for turn in range(50):
            text = f"the dog {number} příliš {turn} 😀"
            if tokenizer.decode(tokenizer.encode(text)) != text:
                wrong.append(text)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


DECODERS: dict[str, Callable[[], decoders.Decoder | None]] = {
    "WordPiece": decoders.WordPiece,
    "BPEDecoder": decoders.BPEDecoder,
    "CTC": decoders.CTC,
    "Fuse": decoders.Fuse,
    "Strip": lambda: decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 2, 0)]),
    "ByteFallback": lambda: decoders.Sequence([decoders.Fuse(), decoders.ByteFallback()]),
    "no decoder": lambda: None,
}


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_without_bytes_of_single_tokens_is_refused_by_name(tmp_path: Path, name: str) -> None:
    decoder = DECODERS[name]()
    stated = None if decoder is None else json.loads(decoder.__getstate__())
    with pytest.raises(RefusedError, match=name):
        load_tokenizer(saved(tmp_path, sentencepiece(), decoder=stated))


@pytest.mark.parametrize("lost", ["q", "\n", "ž", "😀"])
def test_bytes_that_join_to_other_text_than_the_library_decodes_are_refused(lost: str) -> None:
    library = byte_level()
    table = TokenTable([library.id_to_token(token) for token in range(library.get_vocab_size())], spelled_bytes)
    token_bytes = TokenBytes(table)

    def decode(ids: Sequence[int]) -> str:
        return joined(token_bytes, ids).decode("utf-8", "replace")

    prove_bytes(library, token_bytes, decode)
    with pytest.raises(RefusedError, match="other text"):
        prove_bytes(library, token_bytes, lambda ids: decode(ids).replace(lost, ""))


def test_a_single_id_whose_bytes_are_wrong_is_refused() -> None:
    library = byte_level()
    texts = [library.id_to_token(token) for token in range(library.get_vocab_size())]
    think = library.token_to_id("<think>")
    token_bytes = TokenBytes(TokenTable(texts, lambda text: b"<th>" if text == "<think>" else spelled_bytes(text)))
    with pytest.raises(RefusedError, match=f"id {think} "):
        prove_bytes(library, token_bytes, lambda ids: joined(token_bytes, ids).decode("utf-8", "replace"))
