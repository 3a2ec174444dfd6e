"""Readers of config fields: what passes, and that a refusal names field, value and limit in one short line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.families.fields import ConfigError, Fields, clipped, shown


def refusal(call: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value.message


def test_an_integer_in_range_is_read_and_its_limits_are_included() -> None:
    fields = Fields({"low": 1, "high": 9})
    assert (fields.integer("low", 1, 9), fields.integer("high", 1, 9)) == (1, 9)


@pytest.mark.parametrize("value", [True, False, 0, 10, 3.0, "3", [3], {"a": 3}, float("nan"), 1 << 5000])
def test_what_is_no_integer_in_range_is_refused_with_field_and_limit(value: Any) -> None:
    message = refusal(lambda: Fields({"size": value}).integer("size", 1, 9))
    assert message.startswith("config.json gives size as ")
    assert message.endswith("; it must be an integer from 1 to 9.")
    assert len(message) < 160


def test_a_missing_or_null_field_takes_its_default_or_is_asked_for() -> None:
    assert Fields({}).integer("size", 1, 9, 4) == Fields({"size": None}).integer("size", 1, 9, 4) == 4
    assert refusal(lambda: Fields({}).integer("size", 1, 9)) == (
        "config.json lacks size, which must be an integer from 1 to 9."
    )
    assert refusal(lambda: Fields({"size": None}, "x.json").integer("size", 1, 9)).startswith("x.json lacks size")


def test_a_number_may_be_an_integer_but_neither_a_boolean_nor_infinite() -> None:
    fields = Fields({"a": 2, "b": 0.5})
    assert fields.number("a", 0, 2) == 2.0
    assert isinstance(fields.number("a", 0, 2), float)
    assert fields.number("b", 0.5, 2) == 0.5
    assert fields.number("c", 0, 2, 1.5) == 1.5
    unusable: list[Any] = [True, float("nan"), float("inf"), -float("inf"), 2.1, -0.1, "1", 1 << 5000]
    for value in unusable:
        assert "a number from 0 to 2" in refusal(lambda value=value: Fields({"a": value}).number("a", 0, 2))


def test_a_flag_is_true_or_false_and_nothing_else() -> None:
    assert Fields({"f": True}).flag("f", False) is True
    assert Fields({"f": None}).flag("f", True) is True
    unusable: list[Any] = [0, 1, "true", [], 1.0]
    for value in unusable:
        assert "must be true or false" in refusal(lambda value=value: Fields({"f": value}).flag("f", False))


def test_a_word_is_one_of_the_allowed() -> None:
    assert Fields({"w": "b"}).word("w", ("a", "b")) == "b"
    assert Fields({}).word("w", ("a", "b"), "a") == "a"
    unusable: list[Any] = ["c", 1, ["a"], {"a": 1}]
    for value in unusable:
        assert "one of a, b" in refusal(lambda value=value: Fields({"w": value}).word("w", ("a", "b")))
    assert refusal(lambda: Fields({}).word("w", ("a",))) == "config.json lacks w, which must be one of a."


def test_a_list_of_words_has_one_for_each_layer() -> None:
    assert Fields({"w": ["a", "b"]}).words("w", 2, ("a", "b")) == ("a", "b")
    assert Fields({}).words("w", 2, ("a", "b")) is None
    assert "a list of 2, one for each layer" in refusal(lambda: Fields({"w": ["a"]}).words("w", 2, ("a",)))
    assert "a list of 1," in refusal(lambda: Fields({"w": "a"}).words("w", 1, ("a",)))
    for bad in ("c", 7, None, ["a"]):
        message = refusal(lambda bad=bad: Fields({"w": ["a", bad]}).words("w", 2, ("a",)))
        assert message.startswith("config.json gives w[1] as ")


def test_token_ids_come_alone_or_listed_and_stay_in_the_vocabulary() -> None:
    assert Fields({"e": 7}).ids("e", 8) == {7}
    assert Fields({"e": [0, 7, 7]}).ids("e", 8) == {0, 7}
    assert Fields({"e": None}).ids("e", 8) == Fields({}).ids("e", 8) == frozenset()
    for bad in (8, -1, True, 1.0, "2", [8], [[1]], [None]):
        message = refusal(lambda bad=bad: Fields({"e": bad}).ids("e", 8))
        assert "a token id is an integer from 0 to 7 (vocab_size less one)" in message
    assert Fields({"e": list(range(8)) * 8}).ids("e", 8) == set(range(8))
    assert "a list of at most 64 token ids" in refusal(lambda: Fields({"e": [1] * 65}).ids("e", 8))


def test_a_nested_object_is_read_under_its_own_name() -> None:
    group = Fields({"g": {"x": 99}}).group("g")
    assert group is not None
    assert refusal(lambda: group.integer("x", 0, 9)).startswith("config.json's g gives x as 99;")
    assert Fields({}).group("g") is None
    assert "it must be an object" in refusal(lambda: Fields({"g": [1]}).group("g"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (False, "false"),
        (None, "null"),
        (-5, "-5"),
        (1 << 200, "an integer of 201 bits"),
        ({"a": 1, "b": 2}, "an object of 2 fields"),
        ([1, 2, 3], "a list of 3"),
        ("gelu", "'gelu'"),
        (float("inf"), "inf"),
        ("a" * 100, "'" + "a" * 36 + "..."),
    ],
)
def test_a_value_is_shown_in_few_characters(value: Any, text: str) -> None:
    assert shown(value) == text


def test_a_strangers_text_is_cut_and_made_printable() -> None:
    assert clipped("a\nb\x1b[0m") == "a?b?[0m"
    assert clipped("x" * 40) == "x" * 40
    assert clipped("x" * 41) == "x" * 37 + "..."
    assert clipped("name", 3) == "..."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
@settings(derandomize=True, deadline=None, max_examples=100)
@pytest.mark.slow
def test_any_value_is_shown_on_one_short_line(value: Any) -> None:
    text = shown(value)
    assert text.isprintable()
    assert len(text) <= 45
