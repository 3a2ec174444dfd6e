"""Reasoning and answer are told apart at the same byte however a reply is cut, and no tag shows in either."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.conversation.thoughts import ThoughtMarks, ThoughtSplitter
from tests.domain.conversation.reading import CHANNEL, THINK, read, read_every_way


@pytest.mark.parametrize(
    ("reply", "inside", "reasoning", "text"),
    [
        ("I add.</think>\n\n4", True, "I add.", "4"),
        ("I add.\n</think>\n\n4", True, "I add.", "4"),
        ("\nI add.\n\nAgain.\n</think>4\n", True, "I add.\n\nAgain.", "4\n"),
        ("long thought", True, "long thought", ""),
        ("long thought\n", True, "long thought\n", ""),
        ("</think>\n\nat once", True, "", "at once"),
        ("<think>\nagain</think>a", True, "again", "a"),
        ("<think>\nI open it.\n</think>\n\nYes", False, "I open it.", "Yes"),
        (" \n<think>x</think>y", False, "x", "y"),
        ("no thought", False, "", "no thought"),
        ("  <thin", False, "", "  <thin"),
        ("  <thing>", False, "", "  <thing>"),
        ("a</think>b", False, "", "a</think>b"),
        ("ok</think>Write `<think>draft</think>` first.", True, "ok", "Write `<think>draft</think>` first."),
        ("half </thin", True, "half </thin", ""),
        ("a < b </thinking> c</think>d", True, "a < b </thinking> c", "d"),
        ("é</think>ü", True, "é", "ü"),
        ("", True, "", ""),
        ("\n\n", False, "", "\n\n"),
    ],
)
def test_a_thought_ends_once_at_its_mark(reply: str, inside: bool, reasoning: str, text: str) -> None:
    told = read_every_way(reply, thoughts=THINK, inside=inside)
    assert (told.reasoning, told.text) == (reasoning, text)


@pytest.mark.parametrize(
    ("reply", "reasoning", "text"),
    [
        ("<|channel>thought\nI look.\n<channel|>Yes", "I look.", "Yes"),
        ("<|channel>thought\n<channel|>Yes", "", "Yes"),
        ("<|channel>thought<channel|>Yes", "", "Yes"),
        ("Yes <|channel>thought\nmore\n<channel|>and no", "more", "Yes and no"),
        ("<|channel>thought\na\n<channel|>b<|channel>thought\nc\n<channel|>d", "a\nc", "bd"),
        ("<|channel>final\nx", "", "<|channel>final\nx"),
        ("Yes <|channel>thou", "", "Yes <|channel>thou"),
    ],
)
def test_a_channel_may_be_opened_again_since_its_marks_are_tokens(reply: str, reasoning: str, text: str) -> None:
    told = read_every_way(reply, thoughts=CHANNEL)
    assert (told.reasoning, told.text) == (reasoning, text)


@pytest.mark.parametrize(
    ("tokens", "inside", "counted"),
    [
        (["I", " add", ".", "</think>", "\n\n", "4"], True, 4),
        (["I", " add"], True, 2),
        (["<think>", "I", "</think>", "4"], False, 3),
        (["\n", "<th", "ink>", "I", "</think>", "4"], False, 5),
        (["<th", "ing>", "I"], False, 0),
        (["<think>I</think>4", "5"], False, 1),
        (["4", "5"], False, 0),
    ],
)
def test_tokens_of_reasoning_are_counted_through_the_one_that_closes_it(
    tokens: list[str], inside: bool, counted: int
) -> None:
    assert read(tokens, thoughts=THINK, inside=inside).tokens == counted


FRAGMENTS = ("<think>", "</think>", "<th", "</", "<", "\n", " ", "b", "é", "think>", "<|channel>thought", "<channel|>")


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.lists(st.integers(0, 60), max_size=6),
    st.sampled_from((THINK, CHANNEL)),
    st.booleans(),
)
@pytest.mark.slow
def test_no_cut_changes_what_is_thought_and_what_is_answer(
    reply: str, places: list[int], marks: ThoughtMarks, inside: bool
) -> None:
    data = reply.encode()
    ends = sorted({min(place, len(data)) for place in places} | {len(data)})
    pieces = [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    whole = read([data], thoughts=marks, inside=inside)
    assert read(pieces, thoughts=marks, inside=inside).plain == whole.plain
    told = whole.reasoning + whole.text
    for letter in "bé":
        assert told.count(letter) == reply.count(letter)
    if marks is THINK:
        # Marks and the line breaks around them are left out, and what is left stands in its order.
        assert is_within(told, reply)


def is_within(short: str, long: str) -> bool:
    """Whether the letters of one text stand in another in their order."""
    rest = iter(long)
    return all(letter in rest for letter in short)


def test_a_copy_goes_on_by_itself() -> None:
    first = ThoughtSplitter(THINK, inside=True)
    first.feed(b"a</thi")
    second = first.copy()
    assert second.feed(b"nk>b") == [(False, b"b")]
    assert (first.inside, second.inside) == (True, False)
    assert first.feed(b"s") == [(True, b"</this")]
