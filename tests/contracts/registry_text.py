"""Every tokenizer, chat template and grammar compiler that a contract suite runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorfold.domain.conversation.template_traits import TemplateTraits
from tests.contracts.candidates import Candidate
from tests.contracts.text.grammar_checks import GrammarSubject
from tests.contracts.text.template_checks import Messages, TemplateSubject
from tests.contracts.text.tokenizer_checks import TokenizerSubject
from tests.fakes.grammar import FakeGrammarCompiler
from tests.fakes.tokenizer import SPECIALS, FakeTemplate, FakeTokenizer

REFUSED: Messages = ({"role": "narrator", "content": "once upon a time"},)

JINJA = """{%- for m in messages -%}
{%- if m.role not in ('system', 'user', 'assistant', 'tool') -%}
{{ raise_exception('The role ' ~ m.role ~ ' is unknown.') }}{%- endif -%}
<|{{ m.role }}|>{{ m.content if m.content is not none else '' }}<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"""
JINJA_WITH_TOOLS = "{%- if tools -%}{{ tools | tojson }}{%- endif -%}" + JINJA
JINJA_THAT_ALTERNATES = (
    """{%- for m in messages -%}
{%- if not loop.first and m.role == messages[loop.index0 - 1].role -%}
{{ raise_exception('Turns must alternate.') }}{%- endif -%}
{%- endfor -%}"""
    + JINJA
)


def _fake_tokenizer(vocabulary: int) -> Candidate[TokenizerSubject]:
    def build(folder: Path) -> TokenizerSubject:
        tokenizer = FakeTokenizer(vocabulary)
        specials = {text: vocabulary - len(SPECIALS) + i for i, text in enumerate(SPECIALS)}
        return TokenizerSubject(tokenizer, lambda: FakeTokenizer(vocabulary), specials, tokenizer.lossless)

    return Candidate(f"fake_{vocabulary}", build)


def _checkpoint_tokenizer(name: str, specials: tuple[str, ...]) -> Candidate[TokenizerSubject]:
    def build(folder: Path) -> TokenizerSubject:
        from tensorfold.adapters.tokenization.tokenizer import load_tokenizer
        from tests.adapters.tokenization import small_tokenizers

        library = getattr(small_tokenizers, name)()
        small_tokenizers.saved(folder, library)
        ids = {text: library.token_to_id(text) for text in specials}
        return TokenizerSubject(load_tokenizer(folder), lambda: load_tokenizer(folder), ids)

    return Candidate(name, build)


TOKENIZERS: tuple[Candidate[TokenizerSubject], ...] = (
    _fake_tokenizer(512),
    _fake_tokenizer(261),
    _fake_tokenizer(64),
    _checkpoint_tokenizer("byte_level", ("<|start|>", "<|end|>")),
    _checkpoint_tokenizer("sentencepiece", ("<s>", "</s>")),
)


def _template(name: str, traits: TemplateTraits | None = None) -> Candidate[TemplateSubject]:
    return Candidate(name, lambda folder: TemplateSubject(FakeTemplate(traits), REFUSED))


def _sandboxed(name: str, source: str | None) -> Candidate[TemplateSubject]:
    def build(folder: Path) -> TemplateSubject:
        from tensorfold.adapters.tokenization.template import load_template

        if source is not None:
            (folder / "chat_template.jinja").write_text(source, encoding="utf-8")
        return TemplateSubject(load_template(folder), REFUSED, absent=source is None)

    return Candidate(name, build)


TEMPLATES: tuple[Candidate[TemplateSubject], ...] = (
    _template("fake"),
    _template("fake_that_alternates", TemplateTraits(user_runs=False)),
    _template("fake_without_tools_or_late_system", TemplateTraits(takes_tools=False, late_system=False)),
    _sandboxed("sandboxed", JINJA),
    _sandboxed("sandboxed_with_tools", JINJA_WITH_TOOLS),
    _sandboxed("sandboxed_that_alternates", JINJA_THAT_ALTERNATES),
    _sandboxed("absent", None),
)


def _fake_grammar(vocabulary: int) -> Candidate[GrammarSubject]:
    tokenizer = FakeTokenizer(vocabulary)
    return Candidate(
        f"fake_{vocabulary}",
        lambda folder: GrammarSubject(FakeGrammarCompiler(tokenizer), tokenizer, tokenizer.end_id),
    )


def _guidance(vocabulary: int) -> Candidate[GrammarSubject]:
    def build(folder: Path) -> GrammarSubject:
        from tensorfold.adapters.grammar.compiler import GuidanceCompiler

        pytest.importorskip("llguidance", reason="llguidance, a dependency of the product, is not installed here")
        tokenizer = FakeTokenizer(vocabulary)
        return GrammarSubject(GuidanceCompiler(tokenizer, frozenset({tokenizer.end_id})), tokenizer, tokenizer.end_id)

    return Candidate(f"guidance_{vocabulary}", build)


GRAMMARS: tuple[Candidate[GrammarSubject], ...] = (
    _fake_grammar(512),
    _fake_grammar(262),
    _guidance(512),
    _guidance(262),
)
