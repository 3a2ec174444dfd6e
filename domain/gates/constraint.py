"""A grammar over the answer of one reply: which drafts can stand, and which tokens each row of a window may draw.

The state of a row follows from the tokens on its own path alone, so a row's mask is the same however it was drafted,
grouped or resumed: constrained drafted replies equal constrained serial ones. While a thought that the prompt left open
goes on, anything may be drawn but an end of the reply and a token in which thought and answer meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.gates.thought_end import Tail, ThoughtEnd
from tensorfold.domain.windows import Window

Mask = NDArray[np.uint32]
"""Packed bits of the tokens that may come next: bit t % 32 of word t // 32."""


class Matcher(Protocol):
    """A compiled grammar's position in one reply."""

    def mask(self) -> Mask:
        """Bits of the tokens that may come next, those that end the reply among them where it may end.

        Raises FormError when the grammar outgrew its limits.
        """
        ...

    def allowed(self, tokens: Sequence[int]) -> int:
        """How many of `tokens`, from the first, fit; the position does not move."""
        ...

    def advance(self, tokens: Sequence[int]) -> None:
        """Move over tokens. Raises ValueError when one does not fit, FormError when the grammar outgrew its limits."""
        ...

    def copy(self) -> Matcher:
        """An independent matcher at the same position."""
        ...


class RejectedTokenError(ValueError):
    """A token joined the reply that its grammar does not take: masks were not obeyed."""


class FormError(ValueError):
    """The reply cannot go on in its form; the text is a sentence for the client, and no other request is concerned."""


@dataclass(frozen=True, slots=True)
class _State:
    """Where a path stands: in the thought while `tail` is not None, then at a position of the grammar."""

    tail: Tail
    matcher: Matcher


class Constraint:
    """The grammar of one stream. `vocabulary` is the model's, `stop_ids` end a reply.

    `thought` follows the thought that the prompt left open; None where the answer begins at once.
    """

    __slots__ = ("_open", "_state", "_stop_ids", "_thought", "_vocabulary")

    def __init__(
        self, matcher: Matcher, vocabulary: int, stop_ids: frozenset[int], thought: ThoughtEnd | None = None
    ) -> None:
        self._vocabulary = vocabulary
        self._stop_ids = stop_ids
        self._thought = thought
        self._open = _everything(vocabulary, stop_ids)
        self._state = _State(None if thought is None else thought.start, matcher)

    def copy(self) -> Constraint:
        """An independent one at the same place."""
        other = object.__new__(Constraint)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    @property
    def in_answer(self) -> bool:
        """Whether the grammar holds for the next token."""
        return self._state.tail is None

    def fitting(self, fixed: Sequence[int], drafts: Sequence[int], parents: Sequence[int] | None) -> tuple[int, ...]:
        """The drafts that could be drawn, by index: behind the `fixed` tokens, each below its parent.

        `parents[i]` is the row that draft i follows (0: the last fixed token, k + 1: draft k); None: each follows the
        one before it. A draft that ends the reply is left out, since nothing is verified behind it.
        """
        at: _State | None = self._state
        for token in fixed:
            at = self._after(at, token)
        states = [at]
        kept = []
        for index, token in enumerate(drafts):
            parent = index if parents is None else parents[index]
            state = None if token in self._stop_ids else self._after(states[parent], token)
            states.append(state)
            if state is not None:
                kept.append(index)
        return tuple(kept)

    def masks(self, window: Window) -> tuple[Mask | None, ...]:
        """The mask of every row that is drawn and can be reached; None for the others."""
        states: list[_State | None] = [self._state]
        for row in range(1, len(window)):
            states.append(self._after(states[window.parents[row]], window.tokens[row]))
        return tuple(
            None if row < window.forced or state is None else self._mask(state) for row, state in enumerate(states)
        )

    def advanced(self, tokens: Sequence[int]) -> Constraint:
        """The constraint behind tokens that are about to join the reply. Raises RejectedTokenError."""
        state, rest = self._state, list(tokens)
        while rest and state.tail is not None:
            after = self._after(state, rest.pop(0))
            if after is None:
                raise RejectedTokenError("a thought ended where no answer can begin")
            state = after
        if rest:
            matcher = state.matcher.copy()
            try:
                matcher.advance(rest)
            except FormError:
                raise
            except ValueError:
                raise RejectedTokenError("a token of the reply does not fit its grammar") from None
            state = _State(None, matcher)
        other = self.copy()
        other._state = state
        return other

    def _after(self, state: _State | None, token: int) -> _State | None:
        """The state behind one more token; None where it could not have been drawn."""
        if state is None:
            return None
        if state.tail is not None:
            assert self._thought is not None
            if token in self._stop_ids or token in self._thought.straddling(state.tail):
                return None
            return _State(self._thought.after(state.tail, token), state.matcher)
        if state.matcher.allowed((token,)) == 0:
            return None
        matcher = state.matcher.copy()
        matcher.advance((token,))
        return _State(None, matcher)

    def _mask(self, state: _State) -> Mask:
        if state.tail is not None:
            assert self._thought is not None
            return _without(self._open, self._thought.straddling(state.tail))
        words = _fitted(state.matcher.mask(), self._vocabulary)
        if not words.any():
            raise FormError("The reply cannot go on: its form allows no token here that this model has.")
        return words


def _words(vocabulary: int) -> int:
    return (vocabulary + 31) // 32


def _everything(vocabulary: int, but: frozenset[int]) -> Mask:
    words = np.full(_words(vocabulary), 0xFFFFFFFF, dtype=np.uint32)
    return _without(_fitted(words, vocabulary), [token for token in but if token < vocabulary])


def _without(mask: Mask, tokens: Sequence[int]) -> Mask:
    if not tokens:
        return mask
    mask = mask.copy()
    for token in tokens:
        mask[token // 32] &= np.uint32(0xFFFFFFFF ^ (1 << token % 32))
    return mask


def _fitted(mask: Mask, vocabulary: int) -> Mask:
    """A mask with as many words as the model's vocabulary needs; ids that it does not have are not allowed."""
    count = _words(vocabulary)
    words = np.zeros(count, dtype=np.uint32)
    words[: len(mask)] = mask[:count]
    if vocabulary % 32:
        words[-1] &= np.uint32((1 << vocabulary % 32) - 1)
    return words
