"""The chat template adapter: what templates are given, and what they make of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.tokenization.render_limits import RenderLimits
from tensorfold.adapters.tokenization.template import load_template
from tensorfold.adapters.tokenization.tokenizer import load_tokenizer
from tensorfold.application.ports.tokenizer import ChatTemplate, TemplateError
from tests.adapters.tokenization.small_tokenizers import byte_level, saved

HELLO = ({"role": "user", "content": "hello"},)
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LOOP = (
    "{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}"
    "{% if i == 3 %}{% break %}{% endif %}{% endfor %}"
)


@contextmanager
def loaded(folder: Path, source: str, limits: RenderLimits | None = None, **config: Any) -> Iterator[ChatTemplate]:
    """A template from a folder's files, closed afterwards."""
    (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    template = load_template(folder, limits)
    try:
        yield template
    finally:
        template.close()


def _rendered(folder: Path, source: str, **arguments: Any) -> str:
    with loaded(folder, source, bos_token="<s>", eos_token={"content": "</s>"}) as template:
        return template.render(arguments.pop("messages", HELLO), **arguments).text


def test_a_conversation_is_rendered_with_and_without_the_generation_prompt(tmp_path: Path) -> None:
    turn = "<|im_start|>user\nhello<|im_end|>\n"
    assert _rendered(tmp_path, CHATML) == turn + "<|im_start|>assistant\n"
    assert _rendered(tmp_path, CHATML, add_generation_prompt=False) == turn


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ eos_token }}{{ pad_token }}", "<s></s>"),
        ("{{ tools is none }} {{ documents is none }} {{ tools is defined }}", "True True True"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
        (LOOP, "023"),
        ("{% generation %}a{{ messages[0].content }}{% endgeneration %}b", "ahellob"),
        ("{{ {'é<&': [1, none, true]} | tojson }}", '{"é<&": [1, null, true]}'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": 1\n}'),
        ("{{ {'a': 1} | tojson(separators=(',', ':')) }}", '{"a":1}'),
        ("{{ unknown }}{{ messages[0].unknown }}", ""),
        ("{% set n = namespace(a=1) %}{% set n.a = 2 %}{{ n.a }}", "2"),
        ("{{ '%s-%s' | format('a', 'b') }} {{ 'a\\nb' | indent(2) }} {{ 'a b' | wordwrap(1) }}", "a-b a\n  b a\nb"),
        ("{{ '<b>' }}", "<b>"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_templates_find_what_their_authors_rely_on(tmp_path: Path, source: str, text: str) -> None:
    assert _rendered(tmp_path, source) == text


def test_a_prompt_has_one_first_token_though_template_and_tokenizer_would_both_write_it(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(saved(tmp_path, byte_level()))
    start = tokenizer.token_id("<|start|>")
    with loaded(tmp_path, "{{ bos_token }}{{ messages[0].content }}", bos_token="<|start|>") as template:
        ids = tokenizer.encode(template.render(HELLO).text)
    assert (ids[0], ids.count(start or 0)) == (start, 1)


def test_the_date_can_be_written_where_no_file_can_be_opened(tmp_path: Path) -> None:
    before = datetime.now().date()
    text = _rendered(tmp_path, "{{ strftime_now('%Y-%m-%d') }}")
    assert before <= datetime.fromisoformat(text).date() <= datetime.now().date()


def test_a_requests_variables_reach_the_template_but_replace_nothing_of_ours(tmp_path: Path) -> None:
    source = (
        "{{ thinking }}|{{ bos_token }}|{{ messages[0].content }}|{{ tools is none }}|{{ raise_exception is callable }}"
    )
    variables = {"thinking": "on", "bos_token": "", "messages": [], "tools": [TOOL], "raise_exception": "no"}
    assert _rendered(tmp_path, source, variables=variables) == "on||hello|True|True"


def test_no_text_of_one_conversation_is_left_for_the_next(tmp_path: Path) -> None:
    source = "{% set kept = kept | default('nothing') ~ messages[0].content %}{{ kept }}"
    with loaded(tmp_path, source) as template:
        for _ in range(2):
            assert template.render(HELLO).text == "nothinghello"


def test_a_template_for_tools_is_used_when_there_are_tools(tmp_path: Path) -> None:
    named = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools[0].function.name }}"},
    ]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    template = load_template(tmp_path)
    try:
        assert template.traits.takes_tools
        assert template.render(HELLO).text == "plain"
        assert template.render(HELLO, tools=[]).text == "plain"
        assert template.render(HELLO, tools=[TOOL]).text == "find"
    finally:
        template.close()


def test_half_a_surrogate_pair_becomes_a_replacement_character(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "a\ud83d"}, {"role": "user", "content": "\ud83d\ude00"}]
    text = _rendered(tmp_path, "{{ messages[0].content | tojson }}{{ messages[1].content }}", messages=messages)
    assert text == '"a\ufffd"😀'


def test_a_long_conversation_of_every_script_comes_back_whole(tmp_path: Path) -> None:
    content = "žluťoučký 数学 😀\x00\t\"'\\" * 20_000
    assert _rendered(tmp_path, "{{ messages[0].content }}", messages=[{"role": "user", "content": content}]) == content


def test_a_template_that_raises_is_quoted_on_one_line(tmp_path: Path) -> None:
    source = "{% if messages[0].role != 'system' %}{{ raise_exception('no\nsystem  turn') }}{% endif %}"
    with pytest.raises(TemplateError) as refusal:
        _rendered(tmp_path, source)
    assert refusal.value.message == "The chat template refused the messages: no system turn"


def test_a_template_that_fails_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"chat_template\.jinja failed on these messages at line 3"):
        _rendered(tmp_path, "a\nb\n{{ messages + 1 }}\nc")


def test_a_template_that_does_not_compile_is_refused_at_load_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="not a valid Jinja template at line 2"), loaded(tmp_path, "a\n{% if %}"):
        pass


@pytest.mark.slow
def test_messages_that_are_too_many_or_nest_too_deeply_are_refused(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(200_000):
        deep = [deep]
    with loaded(tmp_path, CHATML, RenderLimits(memory_bytes=128 << 20)) as template:
        with pytest.raises(TemplateError, match="nest too deeply"):
            template.render([{"role": "user", "content": deep}])
        with pytest.raises(TemplateError, match="more than 16 MiB of JSON"):
            template.render([{"role": "user", "content": "x" * (17 << 20)}])
        assert "hello" in template.render(HELLO).text


def test_a_folder_without_a_template_says_so_when_it_is_asked_to_render(tmp_path: Path) -> None:
    template = load_template(tmp_path)
    assert (template.source, template.traits.takes_tools) == ("none", False)
    with pytest.raises(TemplateError, match=r"neither chat_template\.jinja nor a chat_template in tokenizer_config"):
        template.render(HELLO)
    template.close()
