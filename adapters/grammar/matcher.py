"""A position in a compiled grammar. The library's own end is not used: the tokens that end a reply are ours to tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.grammar import refusals
from tensorfold.application.ports.services import GrammarMatcher
from tensorfold.domain.gates.constraint import FormError


class GuidanceMatcher:
    """A `GrammarMatcher`. Behind a token that ends the reply only such tokens may come."""

    __slots__ = ("_end_ids", "_ended", "_matcher", "_vocabulary")

    def __init__(self, matcher: Any, end_ids: frozenset[int], vocabulary: int, ended: bool = False) -> None:
        self._matcher = matcher
        self._end_ids = end_ids
        self._vocabulary = vocabulary
        self._ended = ended

    def mask(self) -> NDArray[np.uint32]:
        """Packed bits of the ids that may come next. Raises FormError when the grammar outgrew its limits."""
        words = np.zeros((self._vocabulary + 31) // 32, dtype=np.uint32)
        if self._ended:
            for token in self._end_ids:
                words[token // 32] |= np.uint32(1 << token % 32)
            return words
        found = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint32)
        self._check()
        words[: len(found)] = found[: len(words)]
        # A grammar may name tokens by number, those that end a reply among them: these end it, and it alone.
        if not self._matcher.is_accepting():
            for token in self._end_ids:
                words[token // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token % 32))
        return words

    def allowed(self, tokens: Sequence[int]) -> int:
        """How many of `tokens`, from the first, fit."""
        # A model may have more ids than its tokenizer, and a draft may be one; the library fails for good on them.
        known = next((index for index, token in enumerate(tokens) if token >= self._vocabulary), len(tokens))
        tokens = tokens[:known]
        body = 0 if self._ended else _until(tokens, self._end_ids)
        fit = int(self._matcher.validate_tokens(list(tokens[:body]))) if body else 0
        self._check()
        if fit < body:
            return fit
        if body < len(tokens) and self._may_end(tokens[:body]):
            return body + _run(tokens[body:], self._end_ids)
        return body

    def advance(self, tokens: Sequence[int]) -> None:
        """Move over tokens; stands still when one does not fit."""
        if self.allowed(tokens) < len(tokens):
            raise ValueError("a token does not fit the grammar")
        body = 0 if self._ended else _until(tokens, self._end_ids)
        if body and not self._matcher.consume_tokens(list(tokens[:body])):
            self._check()
            raise ValueError("a token does not fit the grammar")
        self._ended = self._ended or body < len(tokens)

    def copy(self) -> GrammarMatcher:
        """An independent matcher."""
        return GuidanceMatcher(self._matcher.deep_copy(), self._end_ids, self._vocabulary, self._ended)

    def _may_end(self, before: Sequence[int]) -> bool:
        if self._ended:
            return True
        matcher = self._matcher
        if before:
            matcher = matcher.deep_copy()
            matcher.consume_tokens(list(before))
        return bool(matcher.is_accepting())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise FormError(refusals.OUTGROWN)


def _until(tokens: Sequence[int], ends: frozenset[int]) -> int:
    """Tokens before the first that ends the reply."""
    return next((index for index, token in enumerate(tokens) if token in ends), len(tokens))


def _run(tokens: Sequence[int], ends: frozenset[int]) -> int:
    """How many tokens, from the first, end the reply."""
    return next((index for index, token in enumerate(tokens) if token not in ends), len(tokens))
