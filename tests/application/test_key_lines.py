"""A file of keys: what a line may be, and refusals that name the line and show nothing of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.application.key_lines import MOST_KEY, MOST_KEYS, is_key, read_keys
from tensorfold.application.ports.checkpoints import RefusedError

NAME = "--api-key-file keys"
GOOD = """# Keys of the house
plain

ada: k-ada
  bob.b_2-x :not this one
"""


def test_keys_have_labels_of_their_own_or_numbers() -> None:
    data = b"\xef\xbb\xbf# ours\r\n\r\nplain\r\nada: k:ada\n\tbob.b_2-x:\tk-bob  \nlast#one"
    assert read_keys(data, NAME) == (
        ("file-1", "plain"),
        ("ada", "k:ada"),
        ("bob.b_2-x", "k-bob"),
        ("file-4", "last#one"),
    )


def test_one_label_may_have_several_keys_so_that_they_can_overlap() -> None:
    assert read_keys(b"ada: old\nada: new\n", NAME) == (("ada", "old"), ("ada", "new"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no key"),
        (b"# nothing\n\n \t\n", "holds no key"),
        (b"good\nbad\xff", "is not UTF-8 text; its byte 8"),
        (b"good\ntwo secrets\n", "Line 2 of --api-key-file keys holds a key"),
        (b"secret # comment\n", "a comment needs a line of its own"),
        (b"secr\xc3\xa9t\n", "Line 1 of --api-key-file keys holds a key"),
        (b"secret\x00\n", "printable ASCII"),
        (b"secret\x0bsecret\n", "printable ASCII"),
        (b"x" * (MOST_KEY + 1), "1 to 512"),
        (b"\n\nada:secret\n", "Line 3 of --api-key-file keys has a colon"),
        (b"ada : secret\n", "has a colon"),
        (b": secret\n", "has a colon"),
        (b"a b: secret\n", "has a colon"),
        (b"l" * 65 + b": secret\n", "a label of 1 to 64"),
        (b"ada: two secrets\n", "holds a key"),
        (b"ada: \n", "has a colon"),
        (b"ada:\n", "has a colon"),
        (b"k\n" * (MOST_KEYS + 1), "holds 1025 keys, more than 1024"),
    ],
)
def test_what_is_no_file_of_keys_is_refused_without_being_shown(data: bytes, words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read_keys(data, NAME)
    assert words in refused.value.message
    assert NAME in refused.value.message and "secret" not in refused.value.message


def test_the_most_and_the_longest_keys_are_taken() -> None:
    assert len(read_keys(b"k\n" * MOST_KEYS, NAME)) == MOST_KEYS
    assert read_keys(b"l" * 64 + b": " + b"k" * MOST_KEY, NAME) == (("l" * 64, "k" * MOST_KEY),)


@given(st.binary(max_size=200))
@settings(derandomize=True, deadline=None, max_examples=300)
@pytest.mark.slow
def test_any_bytes_are_keys_that_a_header_can_carry_or_a_refusal(data: bytes) -> None:
    try:
        keys = read_keys(data, NAME)
    except RefusedError as refusal:
        assert refusal.message.isprintable()
        return
    assert keys and all(is_key(key) and label.isascii() for label, key in keys)
