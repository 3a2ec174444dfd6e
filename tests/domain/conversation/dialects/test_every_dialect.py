"""What holds for all dialects: a written call is read back, and no cut of any reply changes what comes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.conversation.call_reader import CallCount, CallReader, Said
from tensorfold.domain.conversation.dialects import DIALECTS, call_dialect, recognised
from tensorfold.domain.conversation.dialects.dialect import Reading, Source
from tensorfold.domain.conversation.offered_tools import OfferedTools
from tests.domain.conversation.dialects.writing import MARK, written
from tests.domain.conversation.reading import CHANNEL, GEMMA, GLM, QWEN, THINK, TOOLS, Read, read

NAMES = st.sampled_from(sorted(DIALECTS))
# Only a value that holds its dialect's own closing marks, in their order, cannot be told from its end.
TEXTS = st.text(st.one_of(st.sampled_from('<>/{}[]"\\\n ,:|'), st.characters(exclude_categories=["Cs"])), max_size=20)
KEYS = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
OBJECTS = st.dictionaries(KEYS, st.one_of(TEXTS, NUMBERS, st.booleans(), st.none()), max_size=3)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": TEXTS,
        "count": st.integers(),
        "share": NUMBERS,
        "sure": st.booleans(),
        "where": st.one_of(st.none(), OBJECTS),
        "items": st.lists(TEXTS, max_size=3),
    },
)
FRAGMENTS = (
    "<tool_call>", "</tool_call>", "<function=find>", "<function=lose>", "</function>", "<parameter=text>", "\n", " ",
    "<parameter=count>", "</parameter>", "find", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "text", "5",
    "<|tool_call>", "<tool_call|>", "call:", "{", "}", MARK, ":", ",", "[", "]", '"', '{"name": "find"',
    '"arguments": {', "\\", "é", "<think>", "</think>", "<|channel>thought", "<channel|>", "STOP", "a", "<", "now",
)  # fmt: skip
PLACES = st.lists(st.integers(0, 400), max_size=8)


def pieces(text: str, places: list[int]) -> list[bytes]:
    data = text.encode()
    ends = sorted({min(place, len(data)) for place in places} | {len(data)})
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


@settings(derandomize=True, deadline=None)
@given(NAMES, st.lists(ARGUMENTS, min_size=1, max_size=3), PLACES, TEXTS)
@pytest.mark.slow
def test_a_written_call_is_read_back_however_it_is_cut(
    dialect: str, arguments: list[dict[str, Any]], places: list[int], before: str
) -> None:
    before = before.replace("<", "").replace("call:", "")
    reply = before + "\n".join(written(dialect, "find", one) for one in arguments)
    told = read(pieces(reply, places), dialect)
    assert [one.parsed for one in told.calls] == arguments
    assert all(one.whole and one.name == "find" for one in told.calls)
    assert told.text == before.rstrip(" \t\r\n")


@settings(derandomize=True, deadline=None, max_examples=250)
@given(
    st.sampled_from((*sorted(DIALECTS), "")),
    st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join),
    PLACES,
    st.booleans(),
    st.sampled_from((None, 1)),
)
@pytest.mark.slow
def test_no_cut_of_any_markup_changes_what_comes_of_it(
    dialect: str, reply: str, places: list[int], inside: bool, most: int | None
) -> None:
    marks = CHANNEL if dialect == GEMMA else THINK
    for thoughts in (None, marks):

        def told(cut: list[bytes], thoughts: Any = thoughts) -> Read:
            return read(cut, dialect, thoughts=thoughts, inside=inside, most=most)

        whole = told([reply.encode()])
        letters = reply.encode()
        assert told(pieces(reply, places)).plain == whole.plain
        assert told([letters[at : at + 1] for at in range(len(letters))]).plain == whole.plain
        for call in whole.calls:
            assert not call.whole or isinstance(call.parsed, dict)
        assert most is None or len(whole.calls) <= most
        if not whole.calls and thoughts is None:
            assert most is not None or whole.text == reply


@settings(derandomize=True, deadline=None)
@given(NAMES, st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join), PLACES)
@pytest.mark.slow
def test_text_without_offered_tools_is_never_a_call(dialect: str, reply: str, places: list[int]) -> None:
    told = read(pieces(reply, places), dialect, tools=())
    assert (told.text, told.calls) == (reply, [])


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_dialect_is_recognised_by_a_call_that_a_template_wrote(dialect: str) -> None:
    rendered = f"<|im_start|>user\nhi\n<|im_start|>assistant\n{written(dialect, 'probe', {'text': 'a'})}<|im_end|>"
    assert recognised(rendered, "probe") == dialect
    assert recognised(rendered, "other") == ""
    found = call_dialect(dialect)
    assert found is not None
    assert found.name == dialect
    assert all(mark in written(dialect, "probe", {"text": "a"}) for mark in found.marks)


def test_an_empty_name_is_no_dialect_and_an_unknown_one_is_an_error() -> None:
    assert call_dialect("") is None
    with pytest.raises(KeyError):
        call_dialect("owl")


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.slow
def test_a_long_call_that_comes_letter_by_letter_costs_no_more_than_its_length(dialect: str) -> None:
    def steps(length: int) -> int:
        reply = written(dialect, "find", {"text": "a<b " * (length // 4)})
        return len(read(list(reply), dialect).calls[0].arguments)

    # 60,000 letters in well under a second: a reader that began anew with each letter would take minutes.
    assert steps(60_000) > 60_000


class Counted:
    """A dialect that counts how often it is asked to read."""

    def __init__(self, dialect: str) -> None:
        self._dialect = DIALECTS[dialect]
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dialect, name)

    def read(self, source: Source, tools: OfferedTools) -> Reading[None]:
        self.asked += 1
        return self._dialect.read(source, tools)


@pytest.mark.parametrize("dialect", [QWEN, GLM])
def test_a_reply_of_nothing_but_beginnings_of_calls_is_read_to_its_end_a_few_times_alone(dialect: str) -> None:
    call = written(dialect, "find", {"text": "X"})
    reply = call[: call.index("X") + 1] * 100
    counted: Any = Counted(dialect)
    reader = CallReader(counted, OfferedTools(TOOLS), CallCount(), live=False)
    parts = [part for letter in reply for part in reader.feed(letter)] + reader.finish()
    assert "".join(part.text for part in parts if isinstance(part, Said)) == reply
    assert counted.asked < 12


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_call_in_a_thought_that_was_never_closed_is_a_call_and_a_broken_one_is_thought(dialect: str) -> None:
    call = written(dialect, "find", {"text": "a.txt"})
    told = read(["I should look.\n", call], dialect, thoughts=THINK, inside=True, tools=TOOLS)
    assert ([one.parsed for one in told.calls], told.reasoning, told.text) == (
        [{"text": "a.txt"}], "I should look.", "",
    )  # fmt: skip
    told = read(["I may ", call[:-25], "</think>", "no"], dialect, thoughts=THINK, inside=True, tools=TOOLS)
    assert (told.calls, told.reasoning, told.text) == ([], "I may " + call[:-25], "no")
