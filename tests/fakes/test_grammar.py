"""Automata of the fake grammar: loops, dead ends, and what follows the end."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tensorfold.application.ports.checkpoints import RefusedError
from tests.fakes.grammar import FakeGrammarCompiler
from tests.fakes.tokenizer import FakeTokenizer

TOKENIZER = FakeTokenizer(300)
DIGITS = json.dumps({"start": 0, "accept": [1], "edges": [[0, "123456789", 1], [1, "0123456789", 1], [1, "x", 2]]})


def test_an_automaton_may_loop_and_its_dead_ends_are_never_allowed() -> None:
    matcher = FakeGrammarCompiler(TOKENIZER).compile("automaton", DIGITS)
    assert matcher.allowed(TOKENIZER.encode("120")) == 3
    assert matcher.allowed(TOKENIZER.encode("012")) == 0
    assert matcher.allowed(TOKENIZER.encode("1x")) == 1


def test_behind_the_end_only_the_end_is_allowed() -> None:
    matcher = FakeGrammarCompiler(TOKENIZER).compile("automaton", DIGITS)
    matcher.advance([*TOKENIZER.encode("7"), TOKENIZER.end_id])
    bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == [TOKENIZER.end_id]


def test_a_rejected_token_leaves_the_position() -> None:
    matcher = FakeGrammarCompiler(TOKENIZER).compile("automaton", DIGITS)
    with pytest.raises(ValueError, match="does not fit"):
        matcher.advance(TOKENIZER.encode("12z"))
    assert matcher.allowed(TOKENIZER.encode("34")) == 2 and matcher.allowed([TOKENIZER.end_id]) == 0


@pytest.mark.parametrize("text", ['{"start": 0, "accept": [9], "edges": []}', '{"start": 0}', "[1]", '{"start": "a"}'])
def test_grammars_that_accept_nothing_or_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        FakeGrammarCompiler(TOKENIZER).compile("automaton", text)


def test_compilations_are_counted() -> None:
    compiler = FakeGrammarCompiler(TOKENIZER)
    compiler.compile("choices", '["a"]')
    assert compiler.compiled == 1
