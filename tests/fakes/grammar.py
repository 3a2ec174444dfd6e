"""Grammars as small automata over bytes: enough to mask, prune and advance replies of a hash model.

Kinds: `choices`, a JSON list of strings of which the reply is one; `automaton`, a JSON object with `start`, `accept`
and `edges` of [from, characters, to]. Where the automaton accepts, the end token is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.checkpoints import RefusedError
from tests.fakes.tokenizer import FakeTokenizer


@dataclass(slots=True)
class Automaton:
    """States are integers; `edges[state][byte]` is the next one. Only states that can still accept are reachable."""

    start: int
    accept: frozenset[int]
    edges: dict[int, dict[int, int]] = field(default_factory=dict)

    def after(self, state: int, piece: bytes) -> int | None:
        """The state behind a piece of text, or None when it does not fit; an empty piece never does."""
        if not piece:
            return None
        at: int | None = state
        for byte in piece:
            at = self.edges.get(at, {}).get(byte) if at is not None else None
        return at

    def trimmed(self) -> Automaton:
        """Without edges to states from which nothing can be accepted."""
        alive = set(self.accept)
        while True:
            more = {s for s, row in self.edges.items() if s not in alive and any(t in alive for t in row.values())}
            if not more:
                break
            alive |= more
        edges = {s: {b: t for b, t in row.items() if t in alive} for s, row in self.edges.items()}
        return Automaton(self.start, self.accept, edges)


class FakeGrammarCompiler:
    """Compiles for one tokenizer; `compiled` counts."""

    def __init__(self, tokenizer: FakeTokenizer) -> None:
        self._tokenizer = tokenizer
        self.compiled = 0

    def compile(self, kind: str, text: str) -> FakeGrammarMatcher:
        """A matcher at its start."""
        try:
            value = json.loads(text)
            automaton = (_choices(value) if kind == "choices" else _automaton(kind, value)).trimmed()
        except (ValueError, KeyError, TypeError):
            raise RefusedError(f"The {kind} grammar is malformed.") from None
        if automaton.start not in automaton.accept and not automaton.edges.get(automaton.start):
            raise RefusedError(f"The {kind} grammar accepts nothing.")
        self.compiled += 1
        return FakeGrammarMatcher(automaton, self._tokenizer, {}, automaton.start)


class FakeGrammarMatcher:
    """A position in an automaton; None is the position behind the end token, where only it may be repeated."""

    def __init__(
        self,
        automaton: Automaton,
        tokenizer: FakeTokenizer,
        masks: dict[int | None, NDArray[np.uint32]],
        at: int | None,
    ) -> None:
        self._automaton = automaton
        self._tokenizer = tokenizer
        self._masks = masks
        self._at = at

    def mask(self) -> NDArray[np.uint32]:
        """Packed bits of the ids that may come next; never all zero."""
        if self._at not in self._masks:
            allowed = np.zeros((self._tokenizer.vocabulary + 31) // 32 * 32, dtype=np.uint8)
            for token in range(self._tokenizer.vocabulary):
                allowed[token] = self._step(self._at, token)[0]
            self._masks[self._at] = np.packbits(allowed, bitorder="little").view(np.uint32)
        return self._masks[self._at].copy()

    def allowed(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` fit."""
        at = self._at
        for count, token in enumerate(tokens):
            fits, at = self._step(at, token)
            if not fits:
                return count
        return len(tokens)

    def advance(self, tokens: Sequence[int]) -> None:
        """Move over tokens; stands still when one does not fit."""
        at = self._at
        for token in tokens:
            fits, at = self._step(at, token)
            if not fits:
                raise ValueError(f"token {token} does not fit the grammar")
        self._at = at

    def copy(self) -> FakeGrammarMatcher:
        """An independent matcher."""
        return FakeGrammarMatcher(self._automaton, self._tokenizer, self._masks, self._at)

    def _step(self, at: int | None, token: int) -> tuple[bool, int | None]:
        if token == self._tokenizer.end_id:
            return at is None or at in self._automaton.accept, None
        if at is None:
            return False, at
        to = self._automaton.after(at, self._tokenizer.token_bytes.of(token))
        return to is not None, to


def _choices(value: Any) -> Automaton:
    if not isinstance(value, list) or not value or not all(isinstance(choice, str) for choice in value):
        raise ValueError("choices are strings")
    edges: dict[int, dict[int, int]] = {0: {}}
    accept: set[int] = set()
    for choice in value:
        at = 0
        for byte in choice.encode():
            at = edges[at].setdefault(byte, len(edges))
            edges.setdefault(at, {})
        accept.add(at)
    return Automaton(0, frozenset(accept), edges)


def _automaton(kind: str, value: Any) -> Automaton:
    if kind != "automaton" or not isinstance(value, Mapping):
        raise ValueError("unknown grammar")
    edges: dict[int, dict[int, int]] = {}
    for source, characters, target in value["edges"]:
        for byte in str(characters).encode():
            edges.setdefault(int(source), {})[byte] = int(target)
    return Automaton(int(value["start"]), frozenset(int(s) for s in value["accept"]), edges)
