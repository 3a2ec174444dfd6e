"""Grammars over llguidance: what is refused, in whose words, and that a hostile grammar costs its own request alone."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.grammar import compiler as compiling
from tensorfold.adapters.grammar.compiler import GuidanceCompiler
from tensorfold.adapters.grammar.limits import MOST_BYTES
from tensorfold.application.ports.checkpoints import RefusedError
from tests.fakes.tokenizer import SPECIALS, FakeTokenizer
from tests.libraries import needs

pytestmark = needs("llguidance")


TOKENIZER = FakeTokenizer(300)
END = TOKENIZER.end_id


@pytest.fixture(scope="module")
def compiler() -> GuidanceCompiler:
    return GuidanceCompiler(TOKENIZER, frozenset({END, 295}))


def fits(compiler: GuidanceCompiler, kind: str, grammar: str, text: str) -> bool:
    """Whether a whole text fits, its end included."""
    matcher = compiler.compile(kind, grammar)
    ids = [*TOKENIZER.encode(text), END]
    return matcher.allowed(ids) == len(ids)


@pytest.mark.parametrize(
    ("kind", "grammar", "good", "bad"),
    [
        ("json_schema", '{"type": "object", "required": ["a"]}', '{"a": 1}', "{}"),
        ("json_schema", "true", "[1, null]", "[1,"),
        ("json_schema", '{"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}', "12", '"12"'),
        ("regex", r"[a-c]{2,3}\.", "abc.", "ad."),
        ("choices", json.dumps(["yes", 'say "no"\n', "né😀"]), 'say "no"\n', "ye"),
        ("choices", json.dumps(["yes", 'say "no"\n', "né😀"]), "né😀", "né"),
        ("lark", 'start: item ("," item)*\nitem: /[0-9]+/', "12,5", "12,"),
    ],
)
@pytest.mark.slow
def test_a_grammar_takes_what_it_says(compiler: GuidanceCompiler, kind: str, grammar: str, good: str, bad: str) -> None:
    assert fits(compiler, kind, grammar, good)
    assert not fits(compiler, kind, grammar, bad)


def test_every_end_token_ends_a_reply_and_only_such_tokens_follow(compiler: GuidanceCompiler) -> None:
    matcher = compiler.compile("choices", '["a"]')
    assert matcher.allowed([295]) == 0
    matcher.advance(TOKENIZER.encode("a"))
    assert matcher.allowed([295, END, 295, 5]) == 3
    matcher.advance([295])
    assert matcher.allowed([END]) == 1 and matcher.allowed([97]) == 0


def allowed_ids(mask: NDArray[np.uint32]) -> set[int]:
    return {token for token in range(300) if mask[token // 32] >> np.uint32(token % 32) & np.uint32(1)}


@pytest.mark.parametrize(
    ("kind", "grammar", "text"),
    [
        ("choices", json.dumps(["a" + SPECIALS[-1]]), "a" + SPECIALS[-1]),
        ("choices", json.dumps([SPECIALS[0] + "b"]), SPECIALS[0] + "b"),
        ("json_schema", json.dumps({"const": SPECIALS[-1] * 2}), json.dumps(SPECIALS[-1] * 2)),
    ],
)
def test_a_text_that_spells_a_special_token_is_written_with_ordinary_ones(
    compiler: GuidanceCompiler, kind: str, grammar: str, text: str
) -> None:
    matcher = compiler.compile(kind, grammar)
    for byte in text.encode():
        allowed = allowed_ids(matcher.mask())
        assert byte in allowed and not allowed & set(TOKENIZER.token_bytes.special)
        matcher.advance([byte])
    assert END in allowed_ids(matcher.mask())


def test_an_end_token_is_offered_only_where_the_reply_may_end(compiler: GuidanceCompiler) -> None:
    with pytest.raises(RefusedError, match="Nothing can satisfy the grammar"):
        compiler.compile("lark", f'start: <[{END}]> "a"')
    matcher = compiler.compile("lark", f'start: "a" <[90-{END}]>')
    matcher.advance([97])
    assert allowed_ids(matcher.mask()) == set(range(90, END)) - {295}


@pytest.mark.parametrize("beyond", [300, 301, 303, 2**20])
def test_a_draft_that_the_tokenizer_does_not_know_fits_nowhere_and_harms_nothing(
    compiler: GuidanceCompiler, beyond: int
) -> None:
    matcher = compiler.compile("regex", "ab+").copy()
    assert matcher.allowed([beyond]) == 0
    assert matcher.allowed([97, 98, beyond, 98]) == 2
    matcher.advance([97, 98])
    assert matcher.allowed([98, END, beyond]) == 2
    with pytest.raises(ValueError, match="does not fit"):
        matcher.advance([beyond])
    assert allowed_ids(matcher.mask()) == {98, END, 295}


def test_blanks_between_the_parts_of_a_json_text_end(compiler: GuidanceCompiler) -> None:
    matcher = compiler.compile("json_schema", '{"type": "object"}')
    ids = TOKENIZER.encode("{" + " " * 200)
    assert 1 < matcher.allowed(ids) < 100


@pytest.mark.parametrize(
    ("kind", "grammar", "said"),
    [
        ("json_schema", "{", "The JSON schema is malformed"),
        ("json_schema", '"text"', "The JSON schema is malformed"),
        ("json_schema", '{"x-guidance": {"lenient": true}}', "The JSON schema is malformed"),
        ("json_schema", '{"type": "strin"}', "The JSON schema is malformed"),
        ("json_schema", '{"not": {}, "uniqueItems": true}', "`not`"),
        ("json_schema", '{"oneOf": [{"type": "string"}, {"minLength": 2}]}', "`oneOf`"),
        (
            "json_schema",
            '{"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$id": "a", "$ref": "#"}}',
            "`$id` beside a `$ref`",
        ),
        ("json_schema", "false", "Nothing can satisfy the JSON schema."),
        ("json_schema", '{"$ref": "http://localhost/schema"}', "refers to another schema"),
        ("json_schema", "[" * 100_000, "The JSON schema is malformed"),
        ("json_schema", '{"items":' * 5000 + "{}" + "}" * 5000, "The JSON schema"),
        ("json_schema", json.dumps({"enum": ["a" * MOST_BYTES]}), f"at most {MOST_BYTES} are taken"),
        ("regex", "(", "The regular expression is malformed"),
        ("json_schema", '{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}', "Nothing can satisfy"),
        ("regex", "[^\\s\\S]", "Nothing can satisfy the regular expression."),
        ("regex", "(" * 100_000, "The regular expression is malformed"),
        ("regex", "\ud800", "half a character"),
        ("choices", '["a", ""]', "no empty one"),
        ("lark", "start: a", "The grammar is malformed"),
        ("lark", 'start: "a" b\nb: /(/', "The grammar is malformed at line 2, column 4"),
        ("lark", "start: " + "(" * 50_000 + '"a"' + ")" * 50_000, "The grammar is malformed"),
        ("xml", "<a/>", "No grammar of the kind 'xml' is known"),
    ],
)
@pytest.mark.slow
def test_a_grammar_that_cannot_be_held_is_refused_in_one_sentence(
    compiler: GuidanceCompiler, kind: str, grammar: str, said: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        compiler.compile(kind, grammar)
    message = refused.value.message
    assert said in message and message.endswith(".") and "\n" not in message and len(message) < 300


def test_a_grammar_is_tried_once_and_each_request_gets_its_own(
    compiler: GuidanceCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compiler.compile("regex", "tried+")
    monkeypatch.setattr(compiling, "_tried", lambda *_: pytest.fail("it was tried again"))
    second = compiler.compile("regex", "tried+")
    first.advance(TOKENIZER.encode("trie"))
    assert second.allowed(TOKENIZER.encode("tried")) == 5


@pytest.mark.slow
def test_a_grammar_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [{"anyOf": [{"properties": {f"k{i}_{j}": {"type": "integer"}}} for j in range(10)]} for i in range(3)]
    monkeypatch.setattr(compiling, "TRIAL_CPU_S", 0)
    began = time.monotonic()
    with pytest.raises(RefusedError, match="takes more than"):
        GuidanceCompiler(TOKENIZER, frozenset({END})).compile("json_schema", json.dumps({"allOf": parts}))
    assert time.monotonic() - began < 30
