"""Arguments of earlier tool calls as the mapping that templates walk."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.conversation.tool_calls import RAW_ARGUMENTS, parsed_arguments, template_calls


@pytest.mark.parametrize(
    ("sent", "parsed"),
    [
        ('{"b": [1, {"a": null}], "a": "é"}', {"b": [1, {"a": None}], "a": "é"}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        ("  \n", {}),
        (None, {}),
        ("{}", {}),
    ],
)
def test_arguments_become_a_mapping(sent: Any, parsed: dict[str, Any]) -> None:
    assert parsed_arguments(sent) == parsed


@pytest.mark.parametrize(
    "sent",
    ['{"a": ', "[1, 2]", '"text"', "7", "null", '{"a": NaN}', "not json", "[" * 100_000, "9" * 5000, 7, [1]],
    ids=lambda sent: str(sent)[:12],
)
def test_arguments_that_are_no_json_object_are_kept_whole_under_the_reserved_key(sent: Any) -> None:
    assert parsed_arguments(sent) == {RAW_ARGUMENTS: sent}


def test_the_order_of_arguments_is_kept() -> None:
    assert list(parsed_arguments('{"z": 1, "a": 2, "m": 3}')) == ["z", "a", "m"]


def test_a_call_without_an_id_or_type_is_taken_and_other_keys_are_left_out() -> None:
    calls = [{"function": {"name": "f", "arguments": "{}", "strict": True}, "index": 0, "type": None}]
    assert template_calls(calls, "calls") == [{"type": "function", "function": {"name": "f", "arguments": {}}}]
