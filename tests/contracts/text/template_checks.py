"""A chat template: conversations to text, its traits the truth, its refusals one sentence."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tensorfold.application.ports.tokenizer import ChatTemplate, TemplateError
from tests.contracts.candidates import refuses, sentence

Messages = Sequence[Mapping[str, Any]]

TALK: Messages = (
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "first question"},
    {"role": "assistant", "content": "first answer"},
    {"role": "user", "content": "second question žluťoučký 😀"},
)
TOOLS = ({"type": "function", "function": {"name": "find_zebra", "description": "d", "parameters": {}}},)


@dataclass(frozen=True, slots=True)
class TemplateSubject:
    """A template, fresh for each check, and a conversation that it refuses; `absent` renders nothing at all."""

    template: ChatTemplate
    refused: Messages
    absent: bool = False


def _text(subject: TemplateSubject, messages: Messages, tools: Messages | None = None, prompt: bool = True) -> str:
    return subject.template.render(messages, tools=tools, add_generation_prompt=prompt).text


def its_source_is_named(subject: TemplateSubject) -> None:
    """A file of the checkpoint, or none."""
    expected = ("none",) if subject.absent else ("chat_template.jinja", "tokenizer_config.json")
    assert subject.template.source in expected


def a_refusal_is_one_sentence(subject: TemplateSubject) -> None:
    """And the next conversation renders."""
    sentence(refuses(lambda: subject.template.render(subject.refused), TemplateError))
    if not subject.absent:
        assert _text(subject, TALK)


def closing_twice_is_harmless_and_rendering_after_it_is_refused(subject: TemplateSubject) -> None:
    """Whatever is rendered."""
    subject.template.close()
    subject.template.close()
    refuses(lambda: subject.template.render(TALK), TemplateError)


def every_message_is_rendered_once_and_in_order(subject: TemplateSubject) -> None:
    """Characters of any script whole."""
    if subject.absent:
        return
    text = _text(subject, TALK)
    places = [text.index(str(message["content"])) for message in TALK]
    assert places == sorted(places)
    assert all(text.count(str(message["content"])) == 1 for message in TALK)


def the_generation_prompt_comes_behind_the_conversation(subject: TemplateSubject) -> None:
    """It only adds."""
    if subject.absent:
        return
    bare, prompted = _text(subject, TALK, prompt=False), _text(subject, TALK)
    assert prompted.startswith(bare) and len(prompted) > len(bare)


def rendering_changes_nothing(subject: TemplateSubject) -> None:
    """Neither its arguments nor later renderings; several threads get the same text."""
    if subject.absent:
        return
    messages, tools = copy.deepcopy(list(TALK)), copy.deepcopy(list(TOOLS))
    expected = _text(subject, messages, tools)
    assert messages == list(TALK) and tools == list(TOOLS)
    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(lambda _: _text(subject, messages, tools), range(9))) == {expected}


def its_traits_tell_the_truth(subject: TemplateSubject) -> None:
    """Tools, late system messages and runs of user messages reach the prompt where the traits say so."""
    if subject.absent:
        assert not subject.template.traits.takes_tools
        return
    traits = subject.template.traits
    user, answer = {"role": "user", "content": "zq_first"}, {"role": "assistant", "content": "fine"}
    assert _shows(subject, [user], "find_zebra", TOOLS) == traits.takes_tools
    late = [user, answer, {"role": "system", "content": "zq_late"}, {"role": "user", "content": "go on"}]
    assert _shows(subject, late, "zq_late") == traits.late_system
    run = [user, {"role": "user", "content": "zq_second"}]
    assert (_shows(subject, run, "zq_first") and _shows(subject, run, "zq_second")) == traits.user_runs


def _shows(subject: TemplateSubject, messages: Messages, mark: str, tools: Messages | None = None) -> bool:
    try:
        return mark in _text(subject, messages, tools)
    except TemplateError:
        return False
