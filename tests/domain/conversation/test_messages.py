"""Messages as clients send them, normalised for a template; every refusal names its field."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.conversation.messages import MessageError, normalise

CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"pattern": "x"}'}}


def _roles(turns: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return [(turn["role"], turn["content"]) for turn in turns]


def _said(*turns: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in turns]


def test_leading_system_and_developer_messages_become_one_with_a_blank_line_between() -> None:
    turns = normalise(_said(("system", "a"), ("developer", "b"), ("system", ""), ("user", "c")))
    assert _roles(turns) == [("system", "a\n\nb"), ("user", "c")]


def test_a_developer_message_alone_is_a_system_message() -> None:
    assert _roles(normalise(_said(("developer", "a"), ("user", "b")))) == [("system", "a"), ("user", "b")]


def test_a_conversation_of_system_messages_alone_is_one_system_message() -> None:
    assert _roles(normalise(_said(("system", "a"), ("system", "b")))) == [("system", "a\n\nb")]


LATE = _said(("system", "lead"), ("user", "hi"), ("developer", "late"), ("user", "go"), ("assistant", "ok"))


@pytest.mark.parametrize(
    ("late_system", "user_runs", "expected"),
    [
        (True, False, [("system", "lead"), ("user", "hi"), ("system", "late"), ("user", "go"), ("assistant", "ok")]),
        (False, True, [("system", "lead"), ("user", "hi"), ("user", "late"), ("user", "go"), ("assistant", "ok")]),
        (False, False, [("system", "lead"), ("user", "hi\n\nlate\n\ngo"), ("assistant", "ok")]),
    ],
)
def test_a_late_system_message_stays_in_place_in_the_form_the_template_takes(
    late_system: bool, user_runs: bool, expected: list[tuple[str, str]]
) -> None:
    assert _roles(normalise(LATE, late_system=late_system, user_runs=user_runs)) == expected


def test_late_system_messages_away_from_user_turns_become_one_user_turn() -> None:
    sent = _said(("user", "hi"), ("assistant", "ok"), ("system", "a"), ("system", "b"), ("assistant", "on"))
    turns = normalise(sent, late_system=False, user_runs=False)
    assert _roles(turns) == [("user", "hi"), ("assistant", "ok"), ("user", "a\n\nb"), ("assistant", "on")]


def test_user_turns_that_a_client_sent_in_a_row_are_left_to_the_template() -> None:
    sent = _said(("user", "a"), ("user", "b"), ("assistant", "c"), ("system", "d"), ("user", "e"), ("user", "f"))
    turns = normalise(sent, late_system=False, user_runs=False)
    assert _roles(turns) == [("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "d\n\ne"), ("user", "f")]


PARTS = [{"type": "text", "text": "a "}, {"type": "input_text", "text": "b"}, {"type": "output_text", "text": "c"}]


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_content_parts_give_the_same_turn_as_the_joined_string(role: str) -> None:
    assert normalise(_said((role, PARTS))) == normalise(_said((role, "a bc")))


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
@pytest.mark.parametrize("content", [None, []])
def test_content_that_is_null_or_has_no_parts_is_the_empty_text(role: str, content: Any) -> None:
    assert normalise(_said((role, content)))[0]["content"] == ""
    assert normalise([{"role": role}])[0]["content"] == ""


def test_null_content_beside_tool_calls_stays_null_where_the_template_takes_it() -> None:
    sent: list[dict[str, Any]] = [{"role": "assistant", "content": None, "tool_calls": [CALL]}]
    assert normalise(sent)[0]["content"] is None
    assert normalise(sent, null_content=False)[0]["content"] == ""
    assert normalise([sent[0] | {"content": "text"}])[0]["content"] == "text"


def test_a_tool_loop_keeps_the_call_its_arguments_as_a_mapping_and_the_result() -> None:
    sent: list[dict[str, Any]] = [
        {"role": "user", "content": "find notes"},
        {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None},
        {"role": "tool", "tool_call_id": "call_1", "content": PARTS, "name": "find"},
    ]
    assert normalise(sent)[1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": {"pattern": "x"}}}
            ],
        },
        {"role": "tool", "content": "a bc", "name": "find", "tool_call_id": "call_1"},
    ]


@pytest.mark.parametrize("calls", [None, []])
def test_an_assistant_without_calls_has_no_calls(calls: Any) -> None:
    turn = {"role": "assistant", "content": "a", "tool_calls": calls}
    assert normalise([turn]) == [{"role": "assistant", "content": "a"}]


@pytest.mark.parametrize(
    ("sent", "reasoning"),
    [
        ({"reasoning_content": "r"}, "r"),
        ({"reasoning": "s"}, "s"),
        ({"reasoning_content": "r", "reasoning": "s"}, "r"),
        ({"reasoning_content": None, "reasoning": "s"}, "s"),
        ({"reasoning_content": ""}, ""),
        ({"reasoning": {"effort": "high"}}, None),
        ({}, None),
    ],
)
def test_an_assistants_reasoning_is_passed_on(sent: dict[str, Any], reasoning: str | None) -> None:
    assert normalise([{"role": "assistant", "content": "a"} | sent])[0].get("reasoning_content") == reasoning


def test_reasoning_on_other_roles_and_unknown_keys_are_left_out() -> None:
    sent = [{"role": "user", "content": "hi", "reasoning_content": "r", "id": "m1", "opts": {"a": 1}, "name": "ann"}]
    assert normalise(sent) == [{"role": "user", "content": "hi", "name": "ann"}]
    assert normalise([{"role": "user", "content": "hi", "name": 7, "tool_call_id": "x"}]) == [
        {"role": "user", "content": "hi"}
    ]


BAD: list[tuple[Any, str, str]] = [
    ([], "messages", "at least one"),
    ("hello", "messages", "must be a list"),
    (None, "messages", "must be a list"),
    ({"role": "user"}, "messages", "must be a list"),
    (["hello"], "messages[0]", "must be an object"),
    ([{"content": "x"}], "messages[0].role", "must be one of system, developer"),
    (_said(("banana", "x")), "messages[0].role", "must be one of"),
    ([{"role": 7, "content": "x"}], "messages[0].role", "must be one of"),
    ([{"role": ["user"], "content": "x"}], "messages[0].role", "must be one of"),
    (_said(("user", "a"), ("function", "x")), "messages[1].role", "no longer offered"),
    (_said(("user", "a"), ("user", 5)), "messages[1].content", "a string, null or a list"),
    (_said(("user", {"type": "text"})), "messages[0].content", "a string, null or a list"),
    (_said(("user", ["x"])), "messages[0].content[0]", "must be an object"),
    (_said(("user", [{"text": "x"}])), "messages[0].content[0]", "type must be one of"),
    (_said(("user", [PARTS[0], {"type": "tool_use"}])), "messages[0].content[1]", "type must be one of"),
    (_said(("user", [{"type": ["text"], "text": "x"}])), "messages[0].content[0]", "type must be one of"),
    (_said(("user", [{"type": "text"}])), "messages[0].content[0].text", "must be a string"),
    (_said(("user", [{"type": "image_url"}])), "messages[0].content[0]", "an image part, but this model reads text"),
    (_said(("tool", [{"type": "video"}])), "messages[0].content[0]", "a video part"),
    (_said(("system", [{"type": "input_audio"}])), "messages[0].content[0]", "an audio part"),
    (_said(("user", [{"type": "input_file"}])), "messages[0].content[0]", "a file part"),
    ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls", "list of tool calls"),
    ([{"role": "assistant", "tool_calls": ["x"]}], "messages[0].tool_calls[0]", "must be an object"),
    ([{"role": "assistant", "tool_calls": [CALL | {"type": "shell"}]}], "messages[0].tool_calls[0].type", "function"),
    ([{"role": "assistant", "tool_calls": [CALL, {}]}], "messages[0].tool_calls[1].function", "an object with a name"),
    (
        [{"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}],
        "messages[0].tool_calls[0].function.name",
        "non-empty string",
    ),
]


@pytest.mark.parametrize(("messages", "path", "reason"), BAD)
def test_a_message_that_cannot_be_rendered_is_refused_with_its_field(messages: Any, path: str, reason: str) -> None:
    with pytest.raises(MessageError) as refusal:
        normalise(messages)
    assert refusal.value.path == path
    assert reason in refusal.value.message
    assert path in refusal.value.message
    assert "\n" not in refusal.value.message


TURNS = st.lists(
    st.tuples(st.sampled_from(["system", "developer", "user", "assistant", "tool"]), st.text("ab", min_size=1)),
    min_size=1,
    max_size=8,
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(turns=TURNS, late_system=st.booleans(), user_runs=st.booleans())
@pytest.mark.slow
def test_no_text_is_lost_or_moved_whatever_the_template_takes(
    turns: list[tuple[str, str]], late_system: bool, user_runs: bool
) -> None:
    normal = normalise(_said(*turns), late_system=late_system, user_runs=user_runs)
    assert "".join(turn["content"] for turn in normal).replace("\n\n", "") == "".join(text for _, text in turns)
    late = [turn["role"] for turn in normal[1:] if turn["role"] == "system"]
    assert late == [] or late_system


@settings(derandomize=True, deadline=None, max_examples=200)
@given(turns=TURNS)
@pytest.mark.slow
def test_late_system_messages_never_make_user_turns_stand_in_a_row(turns: list[tuple[str, str]]) -> None:
    apart = [turn for i, turn in enumerate(turns) if turn[0] != "user" or i == 0 or turns[i - 1][0] != "user"]
    roles = [turn["role"] for turn in normalise(_said(*apart), late_system=False, user_runs=False)]
    assert ("user", "user") not in list(pairwise(roles))
