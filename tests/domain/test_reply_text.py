"""Text of a reply: whole characters, nothing a stop string may take back, the same however ids arrive."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tensorfold.domain.conversation.reply_text import ReplyText
from tensorfold.domain.conversation.token_bytes import TokenBytes


def deltas(pieces: Sequence[bytes], stops: Sequence[bytes] = (), rule: str = "concat") -> list[str]:
    """The text of each piece fed alone, then of the end."""
    text = ReplyText(TokenBytes(pieces, rule=rule), stops)  # type: ignore[arg-type]
    return [*(text.feed([token]) for token in range(len(pieces))), text.finish()]


def test_characters_that_arrive_byte_by_byte_come_out_whole() -> None:
    pieces = [b"\xf0\x9f", b"\x98", b"\x80", b" ", b"\xc4", b"\x8f", b"bel", b""]
    assert deltas(pieces) == ["", "", "😀", " ", "", "ď", "bel", "", ""]
    text = ReplyText(TokenBytes(pieces))
    assert text.feed(range(8)) + text.finish() == "😀 ďbel"


def test_a_reply_cut_inside_a_character_ends_with_one_replacement() -> None:
    assert deltas([b"ok", b"\xf0\x9f"]) == ["ok", "", "�"]
    whole = ReplyText(TokenBytes([b"ok", b"\xf0\x9f"]))
    assert whole.feed([0, 1]) + whole.finish() == "ok�"


def test_malformed_bytes_inside_a_reply_are_replaced_once_a_sequence() -> None:
    assert "".join(deltas([b"a\xff", b"\xf0\x9f", b"b\x80\x80"])) == "a��b��"


def test_a_stop_string_and_what_follows_it_are_not_shown() -> None:
    letters = [b"L", b" M", b" N", b" O", b" P", b" Q", b" R"]
    assert deltas(letters, [b"O P Q"]) == ["L", " M", " N", " ", "", "", "", ""]
    assert deltas([b"L M N O P Q R"], [b"O P Q"]) == ["L M N ", ""]


def test_a_held_beginning_is_shown_when_it_turns_out_not_to_be_a_stop() -> None:
    assert deltas([b"a", b"b", b"a", b"b", b"c", b"d"], [b"abc"]) == ["", "", "ab", "", "", "", ""]
    assert deltas([b"a", b"b", b"x", b"a"], [b"abc"]) == ["", "", "abx", "", "a"]


def test_a_held_beginning_is_shown_at_the_end_unless_a_stop_ended_the_reply() -> None:
    for stopped, tail in ((False, "ab"), (True, "")):
        text = ReplyText(TokenBytes([b"xab"]), [b"abc"])
        assert text.feed([0]) == "x"
        assert text.finish(stopped=stopped) == tail


def test_bytes_before_a_stop_that_are_no_whole_character_end_as_a_replacement() -> None:
    text = ReplyText(TokenBytes([b"a\xf0\x9f", b"STOP", b"b"]), [b"STOP"])
    assert [text.feed([0]), text.feed([1, 2]), text.finish(stopped=True)] == ["a", "", "�"]


def test_nothing_is_shown_after_the_end() -> None:
    text = ReplyText(TokenBytes([b"a"]))
    assert text.feed([0]) == "a"
    assert text.finish() == ""
    assert text.feed([0]) == ""
    assert text.finish() == ""


def test_special_and_unknown_ids_show_nothing() -> None:
    text = ReplyText(TokenBytes([b"a", b"</s>"], frozenset({1})))
    assert text.feed([1, 0, 1, 2, 99, -1, 0]) == "aa"


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([b" Hello", b" you"], "Hello you"),
        ([b"  two", b" x"], " two x"),
        ([b"", b" late"], "late"),
        ([b" ", b" x"], " x"),
        ([b"none", b" x"], "none x"),
        ([b"\tx", b" y"], "\tx y"),
    ],
)
def test_a_text_that_starts_with_a_space_loses_it_only_under_its_rule(pieces: list[bytes], shown: str) -> None:
    assert "".join(deltas(pieces, rule="strip_first_space")) == shown
    assert "".join(deltas(pieces)) == b"".join(pieces).decode()


def cut(pieces: Sequence[bytes], stops: Sequence[bytes]) -> bytes:
    """The bytes before the stop that the first token to complete any completes, by plain search."""
    text = b""
    for piece in pieces:
        before, text = len(text), text + piece
        ends = range(before + 1, len(text) + 1)
        starts = [end - len(stop) for end in ends for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text


BYTES = st.sampled_from([0x61, 0x62, 0xF0, 0x9F, 0x98, 0x80, 0xC4, 0x8F, 0xE2, 0x82, 0xED, 0xA0, 0xFF])
PIECES = st.lists(st.lists(BYTES, max_size=4).map(bytes), max_size=16)
STOPS = st.lists(st.lists(BYTES, min_size=1, max_size=4).map(bytes), max_size=3)


@settings(derandomize=True, deadline=None, max_examples=250)
@given(PIECES, STOPS, st.lists(st.integers(0, 16), max_size=6))
@example([b"\xed", b"\xa0", b"\x80"], [], [1])
@example([b"\xf0\x9f", b"a"], [b"\x9fa"], [1])
@pytest.mark.slow
def test_any_grouping_of_ids_gives_the_decoded_bytes_before_the_stop(
    pieces: list[bytes], stops: list[bytes], borders: list[int]
) -> None:
    text = ReplyText(TokenBytes(pieces), stops)
    edges = [0, *sorted(min(border, len(pieces)) for border in borders), len(pieces)]
    parts = [text.feed(range(a, b)) for a, b in pairwise(edges)]
    assert "".join(parts) + text.finish() == cut(pieces, stops).decode("utf-8", "replace")


@settings(derandomize=True, deadline=None, max_examples=150)
@given(PIECES, STOPS)
@pytest.mark.slow
def test_what_is_shown_is_never_taken_back(pieces: list[bytes], stops: list[bytes]) -> None:
    text, shown = ReplyText(TokenBytes(pieces), stops), ""
    for token in range(len(pieces)):
        shown += text.feed([token])
        assert cut(pieces, stops).decode("utf-8", "replace").startswith(shown)
