"""Markers found by rendering: with role tokens, with one opener, without special ids, and where a template refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tensorfold.application.markers import discover
from tensorfold.application.ports.tokenizer import RenderedChat, TemplateError
from tensorfold.domain.prompts.markers import NO_MARKERS, Markers
from tests.fakes.tokenizer import ASSISTANT, END, SYSTEM, USER, FakeTemplate, FakeTokenizer

OPEN = "<|open|>"


class Written(FakeTemplate):
    """Renders messages by a format of the test's own, behind `before` and with `tail` for a reply."""

    def __init__(self, turn: str, before: str = "", tail: str = "", rewrites: bool = False) -> None:
        super().__init__()
        self._format, self._before, self._tail, self._rewrites = turn, before, tail, rewrites

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> RenderedChat:
        count = str(len(messages)) if self._rewrites else ""
        parts = [self._format.format(role=m["role"], text=m["content"]) for m in messages]
        return RenderedChat(self._before + count + "".join(parts) + (self._tail if add_generation_prompt else ""))


def ids(tokenizer: FakeTokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text))


def test_a_token_for_each_role_is_its_opener() -> None:
    tokenizer = FakeTokenizer()
    found = discover(FakeTemplate(), tokenizer)
    assert found.openers == {tokenizer.token_id(role) for role in (SYSTEM, USER, ASSISTANT)}
    assert found.assistant == ids(tokenizer, ASSISTANT)


def test_one_opener_with_the_roles_name_behind_it() -> None:
    tokenizer = FakeTokenizer(specials=(OPEN, END))
    template = Written(OPEN + "{role}\n{text}" + END, tail=f"{OPEN}assistant\n")
    found = discover(template, tokenizer)
    assert found == Markers(frozenset(ids(tokenizer, OPEN)), ids(tokenizer, f"{OPEN}a"))


def test_what_stands_before_the_first_message_is_no_opener() -> None:
    tokenizer = FakeTokenizer(specials=("<|begin|>", OPEN, END))
    template = Written(OPEN + "{role}\n{text}" + END, before="<|begin|>", tail=f"{OPEN}assistant\n")
    assert discover(template, tokenizer).openers == set(ids(tokenizer, OPEN))


def test_a_reply_that_begins_with_a_thought_shortens_nothing() -> None:
    tokenizer = FakeTokenizer(specials=(OPEN, END, "<think>"))
    template = Written(OPEN + "{role}\n{text}" + END, tail=f"{OPEN}assistant\n<think>\n")
    assert discover(template, tokenizer).assistant == ids(tokenizer, f"{OPEN}a")


@pytest.mark.parametrize(
    "template",
    [
        Written("{role}: {text}\n", tail="assistant: "),
        Written("[{role}] {text}", rewrites=True),
        Written("[{role}] {text}", before="(", rewrites=True),
    ],
    ids=["no special ids", "rewrites its beginning", "rewrites behind its beginning"],
)
def test_a_template_that_shows_no_markers_has_none(template: FakeTemplate) -> None:
    assert discover(template, FakeTokenizer(specials=(OPEN, END))) == NO_MARKERS


def test_a_template_that_refuses_has_none() -> None:
    template = FakeTemplate()
    template.refusal = "no"
    assert discover(template, FakeTokenizer()) == NO_MARKERS


def test_a_template_that_wants_a_user_behind_a_system_message_still_has_markers() -> None:
    class Alternating(FakeTemplate):
        def render(self, messages: Sequence[Mapping[str, Any]], **named: Any) -> RenderedChat:
            if [m["role"] for m in messages] == ["system"]:
                raise TemplateError("a user must speak")
            return super().render(messages, **named)

    tokenizer = FakeTokenizer()
    assert discover(Alternating(), tokenizer).openers == {tokenizer.token_id(role) for role in (USER, ASSISTANT)}
