"""A tokenizer: text to ids and back, bytes that join to the text, special tokens by name, one identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tensorfold.application.ports.tokenizer import Tokenizer

TEXTS = (
    "",
    "the dog and the other dog",
    "  two spaces,\n\ttabs and\r\nlines  ",
    "příliš žluťoučký kůň",
    "数学 😀 👩‍👩‍👧 e\u0301",
    "def area(radius):\n    return 3 * radius ** 2\n",
    "0123456789" * 3,
    "\x00\x01\x7f",
)


@dataclass(frozen=True, slots=True)
class TokenizerSubject:
    """A tokenizer, how to build an equal one, its special tokens, and whether any text survives it."""

    tokenizer: Tokenizer
    again: Callable[[], Tokenizer]
    specials: Mapping[str, int]
    lossless: bool = True


def _joined(tokenizer: Tokenizer, ids: Sequence[int], special: bool = False) -> bytes:
    data, begun = b"", False
    for token in ids:
        if special and token in tokenizer.token_bytes.special:
            part, begun = tokenizer.token_bytes.table[token], True
        else:
            part, begun = tokenizer.token_bytes.shown(token, begun)
        data += part
    return data


def ids_are_whole_numbers_of_the_vocabulary(subject: TokenizerSubject) -> None:
    """And equal texts have equal ids."""
    for text in TEXTS:
        ids = subject.tokenizer.encode(text)
        assert isinstance(ids, list) and all(type(token) is int for token in ids)
        assert all(0 <= token < subject.tokenizer.vocabulary for token in ids)
        assert subject.tokenizer.encode(text) == ids
    assert subject.tokenizer.encode("") == []


def a_text_survives_encoding(subject: TokenizerSubject) -> None:
    """By decoding, and by joining the bytes of its ids."""
    if not subject.lossless:
        return
    for text in TEXTS:
        ids = subject.tokenizer.encode(text)
        assert subject.tokenizer.decode(ids) == text
        assert _joined(subject.tokenizer, ids) == text.encode()


def special_tokens_are_found_in_a_text(subject: TokenizerSubject) -> None:
    """By their exact text; their ids show nothing in a reply and their text in `decode`."""
    tokenizer = subject.tokenizer
    for text, token in subject.specials.items():
        assert tokenizer.token_id(text) == token
        assert tokenizer.encode(f"dog{text}dog").count(token) == 1
        assert tokenizer.encode(text) == [token]
        assert tokenizer.decode([token]) == text
        assert token in tokenizer.token_bytes.special and tokenizer.token_bytes.of(token) == b""


def an_unknown_token_has_no_id(subject: TokenizerSubject) -> None:
    """Whole texts and empty ones included."""
    for text in ("<|no such token|>", "a whole sentence is no token", ""):
        assert subject.tokenizer.token_id(text) is None


def every_id_decodes_to_its_own_bytes(subject: TokenizerSubject) -> None:
    """Malformed ones as U+FFFD; bytes are known for the whole vocabulary."""
    tokenizer = subject.tokenizer
    assert len(tokenizer.token_bytes.table) >= tokenizer.vocabulary
    for token in range(tokenizer.vocabulary):
        assert tokenizer.decode([token]) == _joined(tokenizer, [token], special=True).decode("utf-8", "replace")


def the_identity_names_the_tokenizer(subject: TokenizerSubject) -> None:
    """It is the same for an equal one and does not change with use."""
    before = subject.tokenizer.identity
    subject.tokenizer.encode("dog")
    assert before == subject.tokenizer.identity == subject.again().identity != ""


def the_record_digest_names_what_ids_mean(subject: TokenizerSubject) -> None:
    """In 64 hexadecimal digits, the same for an equal one."""
    before = subject.tokenizer.record_digest
    subject.tokenizer.encode("dog")
    assert before == subject.tokenizer.record_digest == subject.again().record_digest
    assert len(before) == 64 and set(before) <= set("0123456789abcdef")


def unpaired_surrogates_do_not_raise(subject: TokenizerSubject) -> None:
    """They become some ids."""
    assert isinstance(subject.tokenizer.encode("a\ud800b"), list)


def several_threads_get_the_same_ids(subject: TokenizerSubject) -> None:
    """At once."""
    expected = [subject.tokenizer.encode(text) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        for ids in pool.map(lambda _: [subject.tokenizer.encode(text) for text in TEXTS], range(16)):
            assert ids == expected
