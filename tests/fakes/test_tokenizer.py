"""The fake tokenizer's table, its small vocabularies, and the fake template's refusals."""

from __future__ import annotations

import pytest

from tensorfold.application.ports.tokenizer import TemplateError
from tensorfold.domain.conversation.template_traits import TemplateTraits
from tests.fakes.hash_model import HashModel
from tests.fakes.tokenizer import ASSISTANT, END, SPECIALS, USER, FakeTemplate, FakeTokenizer


def test_the_end_token_is_where_a_hash_model_stops() -> None:
    tokenizer = FakeTokenizer(64)
    assert tokenizer.token_id(END) == tokenizer.end_id == 63
    assert HashModel().stop_ids == {tokenizer.end_id}


def test_every_id_of_a_small_vocabulary_is_one_readable_byte() -> None:
    tokenizer = FakeTokenizer(64)
    plain = tokenizer.decode(range(64 - len(SPECIALS)))
    assert plain.isascii() and len(set(plain)) == 64 - len(SPECIALS) and not tokenizer.lossless
    assert [tokenizer.encode(c) for c in plain] == [[i] for i in range(len(plain))]
    assert all(0 <= t < 59 for t in tokenizer.encode("ž😀 unknown bytes"))


def test_ids_past_the_bytes_hold_words_and_parts_of_characters() -> None:
    tokenizer = FakeTokenizer(512)
    pieces = tokenizer.token_bytes.table[256 : 512 - len(SPECIALS)]
    assert all(len(piece) >= 1 for piece in pieces) and len(set(pieces)) == len(pieces)
    assert b"\xe2\x82" in pieces and tokenizer.decode([258 + 2]) == "\ufffd"
    assert tokenizer.token_id(" the") == 256


def test_special_ids_show_nothing() -> None:
    tokenizer = FakeTokenizer(300)
    assert tokenizer.shown_bytes[-len(SPECIALS) :] == (b"",) * len(SPECIALS)
    assert tokenizer.shown_bytes[65] == b"A"


def test_a_tokenizer_without_special_tokens_has_none() -> None:
    tokenizer = FakeTokenizer(256, specials=())
    assert tokenizer.token_bytes.special == frozenset() and tokenizer.encode(END) == list(END.encode())


def test_a_vocabulary_needs_room_for_ordinary_ids() -> None:
    with pytest.raises(ValueError, match="leave no room"):
        FakeTokenizer(6)


def test_different_tables_have_different_identities() -> None:
    assert len({FakeTokenizer(v).identity for v in (64, 300, 512)}) == 3
    assert len({FakeTokenizer(v).record_digest for v in (64, 300, 512)}) == 3
    assert FakeTokenizer(300, specials=SPECIALS[::-1]).record_digest != FakeTokenizer(300).record_digest


def test_a_conversation_renders_by_role() -> None:
    template = FakeTemplate()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    text = template.render([{"role": "user", "content": parts}, {"role": "assistant", "content": None}]).text
    assert text == f"{USER}ab{END}{ASSISTANT}{END}{ASSISTANT}"
    assert len(template.calls) == 1


def test_calls_of_tools_and_null_contents_render_as_the_traits_say() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    assert '[{"name": "f"}]' in FakeTemplate().render([message]).text
    assert "None" in FakeTemplate(TemplateTraits(null_content=False)).render([message]).text


def test_a_template_refuses_on_request() -> None:
    template = FakeTemplate()
    template.refusal = "Not today."
    with pytest.raises(TemplateError, match="Not today"):
        template.render([])
    with pytest.raises(TemplateError, match="text alone"):
        FakeTemplate().render([{"role": "user", "content": 7}])
