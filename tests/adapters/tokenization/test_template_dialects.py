"""How a model writes its replies is learned from its template, rendered in the process that renders real ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.tokenization.template import load_template
from tensorfold.application.ports.tokenizer import ChatTemplate
from tensorfold.domain.conversation.dialects import DIALECTS
from tensorfold.domain.conversation.messages import normalise
from tensorfold.domain.conversation.reply_form import reply_form
from tensorfold.domain.conversation.template_traits import TemplateTraits
from tensorfold.domain.families.plans import Dialect
from tests.domain.conversation.reading import TOOLS, read
from tests.synthetic.templates import FAMILIES, template_source

USER = {"role": "user", "content": "hi"}
ARGUMENTS = {"count": 3, "text": "a\nb"}


@pytest.fixture(scope="module", params=FAMILIES)
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChatTemplate]:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "chat_template.jinja").write_text(template_source(request.param))
    made = load_template(folder)
    yield made
    made.close()


def called(call: Mapping[str, Any], **more: Any) -> list[dict[str, Any]]:
    turn = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": call}]}
    return [USER, turn | more, {"role": "tool", "tool_call_id": "c1", "content": "found-1"}]


def form_of(template: ChatTemplate) -> Any:
    return reply_form(Dialect(), template.traits)


EXPECTED = {
    "qwen": ("function_parameters", "</think>", ("low", "medium", "xhigh")),
    "nemotron": ("function_parameters", "</think>", ()),
    "glm": ("arg_key_value", "</think>", ("low", "high", "max")),
    "gemma4": ("gemma4", "<channel|>", ()),
    "json": ("json", "", ()),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_dialect_thought_and_efforts_of_a_family_are_seen_in_its_template(family: str, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text(template_source(family))
    made = load_template(tmp_path)
    made.close()
    traits = made.traits
    assert (traits.tool_calls, traits.thought_close, traits.efforts) == EXPECTED[family]


def test_a_call_of_the_history_is_written_as_the_dialect_reads_it(template: ChatTemplate) -> None:
    messages = normalise(called({"name": "find", "arguments": '{"count": 3, "text": "a\\nb"}'}))
    text = template.render(messages, tools=TOOLS).text
    dialect = template.traits.tool_calls
    # The last opener is the call's: what stands before it may show how calls are written.
    call = text[text.rindex(DIALECTS[dialect].opener) :]
    told = read([call], dialect)
    assert [(one.name, one.parsed) for one in told.calls] == [("find", ARGUMENTS)]
    assert text.index("hi") < text.index("found-1")
    assert "None" not in text


def test_reasoning_of_the_history_reaches_the_prompt_where_the_template_takes_it(template: ChatTemplate) -> None:
    messages = normalise(called({"name": "find", "arguments": "{}"}, reasoning_content="mused-1"))
    text = template.render(messages, tools=TOOLS).text
    form = form_of(template)
    if form.thoughts is None:
        assert "mused-1" not in text
    else:
        assert text.index(form.thoughts.open) < text.index("mused-1") < text.rindex(form.thoughts.close)


def test_thinking_turned_off_leaves_no_thought_open_whatever_the_template_does(template: ChatTemplate) -> None:
    form = form_of(template)
    for thinking in (True, False):
        text = template.render([USER], variables={"enable_thinking": thinking}).text
        closed = text if thinking else form.without_thought(text)
        assert not form.opened(closed) or thinking
        assert closed.startswith(text) or "Reasoning Effort" in text
    if template.traits.tool_calls == "arg_key_value":
        assert closed == "[gMASK]<sop><|user|>hi<|assistant|><think></think>"


def test_a_prompt_that_opens_a_line_of_thought_is_closed_on_a_line_of_its_own() -> None:
    form = reply_form(Dialect(think_open="<think>", think_close="</think>"), TemplateTraits())
    assert form.without_thought("a<think>\n") == "a<think>\n\n</think>\n\n"
    assert form.without_thought("a<think></think>") == "a<think></think>"
