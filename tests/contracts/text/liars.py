"""Tokenizers, templates and grammars that break one promise each."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tensorfold.application.ports.tokenizer import RenderedChat, TemplateError
from tensorfold.domain.conversation.template_traits import TemplateTraits
from tests.contracts.lies import Lie, lying, lying_part
from tests.contracts.registry_text import GRAMMARS, REFUSED
from tests.contracts.text import grammar_checks, template_checks, tokenizer_checks
from tests.contracts.text.grammar_checks import GrammarSubject
from tests.contracts.text.template_checks import TemplateSubject
from tests.contracts.text.tokenizer_checks import TokenizerSubject
from tests.fakes.grammar import FakeGrammarCompiler, FakeGrammarMatcher
from tests.fakes.tokenizer import SPECIALS, FakeTemplate, FakeTokenizer


def _raise(error: BaseException) -> Any:
    raise error


def _tokenizer(**methods: Any) -> Callable[[Path], TokenizerSubject]:
    kind = lying(FakeTokenizer, **methods)
    specials = {text: 300 - len(SPECIALS) + i for i, text in enumerate(SPECIALS)}
    return lambda folder: TokenizerSubject(kind(300), lambda: kind(300), specials)


_calls = itertools.count()
_encode = FakeTokenizer.encode

TOKENIZER_LIES: tuple[Lie, ...] = (
    (
        tokenizer_checks.ids_are_whole_numbers_of_the_vocabulary,
        _tokenizer(encode=lambda self, text: [t + 300 for t in _encode(self, text)]),
    ),
    (
        tokenizer_checks.a_text_survives_encoding,
        _tokenizer(encode=lambda self, text: _encode(self, text.replace(" ", ""))),
    ),
    (
        tokenizer_checks.special_tokens_are_found_in_a_text,
        _tokenizer(encode=lambda self, text: list(text.encode())),
    ),
    (tokenizer_checks.an_unknown_token_has_no_id, _tokenizer(token_id=lambda self, token: 0)),
    (
        tokenizer_checks.every_id_decodes_to_its_own_bytes,
        _tokenizer(decode=lambda self, ids: b"".join(map(self.token_bytes.of, ids)).decode("utf-8", "ignore")),
    ),
    (
        tokenizer_checks.the_identity_names_the_tokenizer,
        _tokenizer(identity=property(lambda self: f"{next(_calls)}")),
    ),
    (
        tokenizer_checks.the_record_digest_names_what_ids_mean,
        _tokenizer(record_digest=property(lambda self: f"{next(_calls):064x}")),
    ),
    (
        tokenizer_checks.unpaired_surrogates_do_not_raise,
        _tokenizer(encode=lambda self, text: list(text.encode("utf-8"))),
    ),
    (
        tokenizer_checks.several_threads_get_the_same_ids,
        _tokenizer(encode=lambda self, text: [next(_calls)]),
    ),
)


def _template(**methods: Any) -> Callable[[Path], TemplateSubject]:
    return lambda folder: TemplateSubject(lying(FakeTemplate, **methods)(), REFUSED)


_render = FakeTemplate.render


def _render_and_change(self: FakeTemplate, messages: Any, **options: Any) -> RenderedChat:
    rendered = _render(self, messages, **options)
    if isinstance(messages, list):
        messages.pop()
    return rendered


TEMPLATE_LIES: tuple[Lie, ...] = (
    (template_checks.its_source_is_named, _template(source="somewhere")),
    (
        template_checks.a_refusal_is_one_sentence,
        _template(render=lambda self, messages, **options: _raise(TemplateError("Traceback:\n  line 1"))),
    ),
    (
        template_checks.closing_twice_is_harmless_and_rendering_after_it_is_refused,
        _template(close=lambda self: None),
    ),
    (
        template_checks.every_message_is_rendered_once_and_in_order,
        _template(render=lambda self, messages, **options: _render(self, messages[::-1], **options)),
    ),
    (
        template_checks.the_generation_prompt_comes_behind_the_conversation,
        _template(render=lambda self, messages, **o: _render(self, messages, **(o | {"add_generation_prompt": True}))),
    ),
    (template_checks.rendering_changes_nothing, _template(render=_render_and_change)),
    (template_checks.its_traits_tell_the_truth, _template(traits=property(lambda self: TemplateTraits(False)))),
)


def _grammar(**methods: Any) -> Callable[[Path], GrammarSubject]:
    kind, tokenizer = lying(FakeGrammarMatcher, **methods), FakeTokenizer(300)

    class Compiler(FakeGrammarCompiler):
        def compile(self, kind_of: str, text: str) -> FakeGrammarMatcher:
            made = super().compile(kind_of, text)
            made.__class__ = kind
            return made

    return lambda folder: GrammarSubject(Compiler(tokenizer), tokenizer, tokenizer.end_id)


_advance, _allowed, _mask = FakeGrammarMatcher.advance, FakeGrammarMatcher.allowed, FakeGrammarMatcher.mask


def _allowed_and_move(self: FakeGrammarMatcher, tokens: Any) -> int:
    count = _allowed(self, tokens)
    _advance(self, tokens[:count])
    return count


GRAMMAR_LIES: tuple[Lie, ...] = (
    (grammar_checks.any_allowed_walk_ends_in_a_choice, _grammar(mask=lambda self: _mask(self) | np.uint32(1))),
    (
        grammar_checks.a_mask_allows_exactly_the_tokens_that_fit,
        _grammar(mask=lambda self: _mask(self) & np.uint32(0xFFFFBFFF)),
    ),
    (grammar_checks.looking_does_not_move, _grammar(allowed=_allowed_and_move)),
    (
        grammar_checks.a_token_that_does_not_fit_raises,
        _grammar(advance=lambda self, tokens: _advance(self, tokens[: _allowed(self, tokens)])),
    ),
    (grammar_checks.a_copy_goes_its_own_way, _grammar(copy=lambda self: self)),
    (
        grammar_checks.a_malformed_grammar_is_refused_in_one_sentence,
        lying_part(GRAMMARS[0], "compiler", compile=lambda self, kind, text: None),
    ),
)
