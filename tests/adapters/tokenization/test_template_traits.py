"""What a template takes is learned from renderings, so it holds for templates written in any way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tensorfold.adapters.tokenization.template import AbsentTemplate, load_template
from tensorfold.application.ports.tokenizer import TemplateError
from tensorfold.domain.conversation.messages import normalise
from tensorfold.domain.conversation.template_traits import TemplateTraits

TAKES_ALL = TemplateTraits()
TURN = "[{{ m.role }}]{{ m.content or '' }}{{ m.tool_calls | tojson if m.tool_calls }}"
PLAIN = "{% for m in messages %}" + TURN + "{% endfor %}"
TOOLS = "{{ tools | tojson if tools }}"
STRICT_ROLES = (
    "{% for m in messages if m.role != 'system' %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}"
)
SYSTEM_FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('system must be first') }}{% endif %}{% endfor %}"
)
SYSTEM_LOST = "{% for m in messages %}{% if loop.first or m.role != 'system' %}" + TURN + "{% endif %}{% endfor %}"


def _traits(folder: Path, source: str) -> TemplateTraits:
    (folder / "chat_template.jinja").write_text(source)
    template = load_template(folder)
    template.close()
    return template.traits


@pytest.mark.parametrize(
    ("source", "traits"),
    [
        (TOOLS + PLAIN, TAKES_ALL),
        (PLAIN, replace(TAKES_ALL, takes_tools=False)),
        ("{% if messages[0].role == 'system' %}" + TOOLS + "{% endif %}" + PLAIN, TAKES_ALL),
        ("{{ 'tools' if tools }}" + PLAIN, replace(TAKES_ALL, takes_tools=False)),
        (TOOLS + SYSTEM_FIRST + PLAIN, replace(TAKES_ALL, late_system=False)),
        (TOOLS + SYSTEM_LOST, replace(TAKES_ALL, late_system=False)),
        (TOOLS + STRICT_ROLES + PLAIN.replace("or ''", ""), TemplateTraits(True, False, False, False)),
        (TOOLS + PLAIN.replace(" or ''", ""), replace(TAKES_ALL, null_content=False)),
        (TOOLS + PLAIN.replace(" or ''", " ~ ''"), replace(TAKES_ALL, null_content=False)),
        (TOOLS + PLAIN.replace("m.content or ''", "m.content + ''"), replace(TAKES_ALL, null_content=False)),
        (TOOLS + PLAIN.replace("m.content or ''", "m.content | tojson"), replace(TAKES_ALL, null_content=False)),
        ("None null" + TOOLS + PLAIN, TAKES_ALL),
        ("{{ raise_exception('never') }}", TemplateTraits(False, False, False, False)),
    ],
)
@pytest.mark.slow
def test_a_templates_traits_are_what_it_renders(tmp_path: Path, source: str, traits: TemplateTraits) -> None:
    assert _traits(tmp_path, source) == traits


EFFORT = "{{ reasoning_effort }}"
BRANCHES = "{% if reasoning_effort == 'low' %}Be quick.{% elif reasoning_effort == 'high' %}Think.{% endif %}"
REFUSING = "{% if (reasoning_effort or 'low') not in ('low', 'high') %}{{ raise_exception('no') }}{% endif %}" + EFFORT


@pytest.mark.parametrize(
    ("source", "efforts"),
    [
        ("", ()),
        ("{# reasoning_effort #}", ()),
        ("{{ reasoning_effort is defined }}", ()),
        (EFFORT, ("minimal", "low", "medium", "high", "xhigh", "max")),
        (BRANCHES, ("low", "high")),
        (REFUSING, ("low", "high")),
        ("{% if enable_thinking %}" + BRANCHES + "{% endif %}", ("low", "high")),
        ("{{ strftime_now('%H %M %S') }}" + BRANCHES, ("low", "high")),
    ],
)
@pytest.mark.slow
def test_the_efforts_of_a_template_are_those_it_tells_from_any_odd_word(
    tmp_path: Path, source: str, efforts: tuple[str, ...]
) -> None:
    assert _traits(tmp_path, source + TOOLS + PLAIN) == replace(TAKES_ALL, efforts=efforts)


def test_a_probe_that_must_be_stopped_refuses_the_template_at_load(tmp_path: Path) -> None:
    source = "{% if tools %}{{ 'x' * (messages | length) * 10 ** 10 }}{% endif %}" + PLAIN
    with pytest.raises(TemplateError, match="512 MiB of memory"):
        _traits(tmp_path, source)


def test_a_checkpoint_without_a_template_takes_no_tools(tmp_path: Path) -> None:
    assert AbsentTemplate(tmp_path).traits.takes_tools is False


@pytest.mark.parametrize("source", [TOOLS + PLAIN, TOOLS + SYSTEM_FIRST + PLAIN, SYSTEM_LOST, STRICT_ROLES + PLAIN])
@pytest.mark.slow
def test_a_late_system_message_reaches_the_prompt_of_every_kind_of_template(tmp_path: Path, source: str) -> None:
    (tmp_path / "chat_template.jinja").write_text(source)
    template = load_template(tmp_path)
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": "be kind"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "MARK"},
        {"role": "user", "content": "go"},
    ]
    traits = template.traits
    try:
        text = template.render(normalise(messages, late_system=traits.late_system, user_runs=traits.user_runs)).text
    finally:
        template.close()
    assert text.index("be brief\n\nbe kind") < text.index("hi") < text.index("MARK") < text.index("go")
