"""A record's identity: its text, its folder's name, and the digest of what ids mean."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.recall.identity import (
    MOST_MODEL,
    MOST_TEXT_BYTES,
    MOST_VOCABULARY,
    RecordIdentity,
    mended,
    parse,
    record_digest,
)

DIGEST = hashlib.sha256(b"a").hexdigest()
VOCABULARY = (("a", 0), ("b", 1), ("ab", 2))
MERGES = (("a", "b"), ("ab", "a"))
ADDED = ((3, "<s>", True), (4, "<t>", False))


def test_the_text_is_three_lines_and_their_check() -> None:
    identity = RecordIdentity(DIGEST, 248320, "Qwen3.8-27B-MLX-4bit")
    lines = f"tokenizer sha256:{DIGEST}\nvocabulary 248320\nmodel Qwen3.8-27B-MLX-4bit"
    assert identity.text() == f"{lines}\ncheck {zlib.crc32(lines.encode()):08x}\n"
    assert parse(lines + "\n") == parse(lines) == identity
    assert parse(identity.text()) == parse(identity.text().removesuffix("\n")) == identity
    assert identity.folder_name == f"{DIGEST[:16]}-248320"


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(1, MOST_VOCABULARY), st.text(max_size=300))
@pytest.mark.slow
def test_whatever_a_model_is_called_its_identity_reads_back(vocabulary: int, model: str) -> None:
    identity = RecordIdentity(DIGEST, vocabulary, model)
    again = parse(identity.text())
    assert again is not None and again.same_tokenizer(identity) and again.model == identity.named_model
    assert len(identity.text().encode("utf-8")) <= MOST_TEXT_BYTES and identity.text().count("\n") == 4


WHOLE = RecordIdentity(DIGEST, 512, "m").text()
GOOD = "".join(WHOLE.splitlines(keepends=True)[:3])
MALFORMED = (
    "",
    "\n",
    GOOD + "\n",
    GOOD + "more\n",
    " " + GOOD,
    GOOD.replace("\n", "\r\n"),
    GOOD.replace("sha256:", ""),
    GOOD.replace("sha256", "md5"),
    GOOD.replace(DIGEST, DIGEST[1:]),
    GOOD.replace(DIGEST, DIGEST + "0"),
    GOOD.replace(DIGEST, DIGEST.upper()),
    GOOD.replace("512", "0"),
    GOOD.replace("512", "0512"),
    GOOD.replace("512", "-512"),
    GOOD.replace("512", "５１２"),
    GOOD.replace("512", "5 12"),
    GOOD.replace("512", str(MOST_VOCABULARY + 1)),
    GOOD.replace("512", "9" * 500),
    GOOD.replace("model m", "model"),
    GOOD.replace("model m", "model m\x1b[2J"),
    GOOD.replace("model m", "model " + "m" * (MOST_MODEL + 1)),
    "\n".join(reversed(GOOD.splitlines())),
    WHOLE + "\n",
    WHOLE.replace("512", "513"),
    WHOLE.replace("check ", "check 0"),
    WHOLE.replace("check", "\ncheck"),
    GOOD + "check \n",
    GOOD + "check 00000000\n",
)


@pytest.mark.parametrize("text", MALFORMED)
def test_nothing_but_the_exact_form_is_read(text: str) -> None:
    assert parse(text) is None


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.text(max_size=200) | st.text(alphabet=sorted(set(GOOD)), max_size=200))
@pytest.mark.slow
def test_no_text_breaks_the_reader(text: str) -> None:
    found = parse(text)
    assert found is None or found.text().startswith(text.rstrip("\n"))


@pytest.mark.parametrize("model", ["m", "", "Qwen3.8-27B-MLX-4bit", "ünï", "m" * MOST_MODEL])
@pytest.mark.slow
def test_one_flipped_bit_names_no_other_tokenizer_and_is_put_right(model: str) -> None:
    identity = RecordIdentity(DIGEST, 248320, model)
    data = identity.text().encode("utf-8")
    for bit in range(0, 8 * len(data), 5 if len(model) < 3 else 61):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = parse(flipped.decode("utf-8", "replace"))
        # Without its line end the check belongs to the model's name, which decides nothing.
        assert found is None or found.same_tokenizer(identity)
        assert mended(bytes(flipped)) == identity


def test_two_flipped_bits_are_not_put_right() -> None:
    data = bytearray(WHOLE.encode())
    for bit in (90, 170):
        data[bit // 8] ^= 1 << bit % 8
    assert mended(bytes(data)) is None


@pytest.mark.parametrize("text", ["", GOOD, GOOD.replace("vocabulary", "vocabulari"), "x" * 400])
def test_without_a_check_nothing_is_put_right(text: str) -> None:
    assert mended(text.encode()) is None


@pytest.mark.parametrize(("digest", "vocabulary"), [("", 5), (DIGEST[:-1], 5), ("g" * 64, 5), (DIGEST, 0)])
def test_an_identity_that_no_tokenizer_has_is_not_made(digest: str, vocabulary: int) -> None:
    with pytest.raises(ValueError):
        RecordIdentity(digest, vocabulary, "m")
    with pytest.raises(ValueError):
        RecordIdentity(DIGEST, MOST_VOCABULARY + 1, "m")


def test_the_model_decides_nothing() -> None:
    identity = RecordIdentity(DIGEST, 512, "one")
    assert identity.same_tokenizer(RecordIdentity(DIGEST, 512, "other"))
    assert not identity.same_tokenizer(RecordIdentity(DIGEST, 513, "one"))
    assert not identity.same_tokenizer(RecordIdentity(DIGEST[::-1], 512, "one"))


def test_the_digest_is_over_length_prefixed_items() -> None:
    items = ["tensorfold record 1", "vocabulary", "2", "a", "0", "é", "1", "merges", "1", "a", "é"]
    items += ["added", "2", "2", "<s>", "special", "3", "<t>", "plain"]
    data = b"".join(len(item.encode()).to_bytes(8, "little") + item.encode() for item in items)
    digest = record_digest([("é", 1), ("a", 0)], [("a", "é")], [(3, "<t>", False), (2, "<s>", True)])
    assert digest == hashlib.sha256(data).hexdigest()


def _digest(
    vocabulary: Sequence[tuple[str, int]] = VOCABULARY,
    merges: Sequence[tuple[str, str]] = MERGES,
    added: Sequence[tuple[int, str, bool]] = ADDED,
) -> str:
    return record_digest(vocabulary, merges, added)


def test_the_order_of_vocabulary_and_added_tokens_is_theirs_by_id() -> None:
    assert _digest() == _digest(vocabulary=VOCABULARY[::-1]) == _digest(added=ADDED[::-1])


def test_every_part_counts() -> None:
    digests = {
        _digest(),
        _digest(vocabulary=(*VOCABULARY[:2], ("ab", 9))),
        _digest(vocabulary=VOCABULARY[:2]),
        _digest(vocabulary=(("b", 0), ("a", 1), ("ab", 2))),
        _digest(merges=MERGES[::-1]),
        _digest(merges=MERGES[:1]),
        _digest(merges=(("a", "ba"), ("b", "a"))),
        _digest(added=ADDED[:1]),
        _digest(added=((3, "<s>", False), ADDED[1])),
        _digest(added=((3, "<S>", True), ADDED[1])),
        _digest(added=((5, "<s>", True), ADDED[1])),
        _digest((), (), ()),
    }
    assert len(digests) == 12


def test_items_do_not_run_into_each_other() -> None:
    assert _digest(merges=[("a", "bc")]) != _digest(merges=[("ab", "c")])
    assert record_digest([("a", 1), ("b", 2)], [], []) != record_digest([("a", 1)], [("b", "2")], [])


def test_a_token_that_is_no_text_has_a_digest() -> None:
    assert len(_digest(vocabulary=[("\ud800", 0)])) == 64
