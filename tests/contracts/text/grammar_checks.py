"""A grammar compiler: masks that allow exactly what can go on, positions that move only when told to."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from functools import partial

import numpy as np

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.services import GrammarCompiler, GrammarMatcher
from tensorfold.application.ports.tokenizer import Tokenizer
from tests.contracts.candidates import refuses, sentence

CHOICES = ("yes", "no", "not now", "nö 😀")


@dataclass(frozen=True, slots=True)
class GrammarSubject:
    """A compiler that knows `choices` (a JSON list of strings), its tokenizer and the id that ends a reply."""

    compiler: GrammarCompiler
    tokenizer: Tokenizer
    end_id: int


def _matcher(subject: GrammarSubject) -> GrammarMatcher:
    return subject.compiler.compile("choices", json.dumps(CHOICES))


def _allowed(subject: GrammarSubject, matcher: GrammarMatcher) -> list[int]:
    words = matcher.mask()
    assert words.dtype == np.uint32 and words.shape == ((subject.tokenizer.vocabulary + 31) // 32,)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    return [int(token) for token in np.flatnonzero(bits)]


def any_allowed_walk_ends_in_a_choice(subject: GrammarSubject) -> None:
    """And every choice is reached by some walk; a mask is never empty before the end."""
    seen = set()
    for seed in range(60):
        rng, matcher, ids = random.Random(seed), _matcher(subject), list[int]()
        while not ids or ids[-1] != subject.end_id:
            allowed = _allowed(subject, matcher)
            assert allowed and max(allowed) < subject.tokenizer.vocabulary
            ids.append(rng.choice(allowed))
            matcher.advance(ids[-1:])
        seen.add(subject.tokenizer.decode(ids[:-1]))
    assert seen == set(CHOICES)


def a_mask_allows_exactly_the_tokens_that_fit(subject: GrammarSubject) -> None:
    """At the start and inside a choice."""
    for begun in ([], subject.tokenizer.encode("no")):
        matcher = _matcher(subject)
        matcher.advance(begun)
        fit = [token for token in range(subject.tokenizer.vocabulary) if matcher.allowed([token]) == 1]
        assert fit == _allowed(subject, matcher)
        assert (subject.end_id in fit) == bool(begun)


def looking_does_not_move(subject: GrammarSubject) -> None:
    """`allowed` counts the tokens that fit, from the first, and stays where it is."""
    matcher = _matcher(subject)
    good, bad = subject.tokenizer.encode("not now"), subject.tokenizer.encode("not then")
    before = matcher.mask().tolist()
    assert matcher.allowed(good) == len(good)
    assert 0 < matcher.allowed(bad) < len(bad)
    assert matcher.allowed([]) == 0 and matcher.mask().tolist() == before


def a_token_that_does_not_fit_raises(subject: GrammarSubject) -> None:
    """ValueError, from `advance`."""
    matcher = _matcher(subject)
    refuses(lambda: matcher.advance(subject.tokenizer.encode("maybe")), ValueError)


def a_copy_goes_its_own_way(subject: GrammarSubject) -> None:
    """In both directions."""
    matcher = _matcher(subject)
    copy = matcher.copy()
    matcher.advance(subject.tokenizer.encode("y"))
    assert copy.allowed(subject.tokenizer.encode("no")) == len(subject.tokenizer.encode("no"))
    copy.advance(subject.tokenizer.encode("no"))
    assert matcher.allowed(subject.tokenizer.encode("es")) == len(subject.tokenizer.encode("es"))


def a_malformed_grammar_is_refused_in_one_sentence(subject: GrammarSubject) -> None:
    """Unreadable, of the wrong type, empty, or of an unknown kind."""
    for kind, text in (("choices", "["), ("choices", '{"a": 1}'), ("choices", "[]"), ("no such kind", '["a"]')):
        sentence(refuses(partial(subject.compiler.compile, kind, text), RefusedError))
