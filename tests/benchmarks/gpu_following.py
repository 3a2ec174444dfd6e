"""A model that runs every row and then draws a given text's own tokens: copies land as often as that text repeats.

Random weights write nothing that repeats. So a real text is laid over the draws: where a row's path is the text's own
so far, the row draws the text's next token, elsewhere its own. The engine, its drafts and its acceptance are untouched,
and all rows run at full cost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import Draws, Lane, LaneWindow, RoundBatch, Span, TargetModel, Ticket
from tests.fakes.wrapped_model import WrappedModel

_WORDS = re.compile(r"\n+|[^\S\n]+|\w+|[^\w\s]")


class Following(WrappedModel):
    """`inner` whose lanes follow one of `texts`, the one that its prompt begins."""

    def __init__(self, inner: TargetModel, texts: Sequence[tuple[int, ...]]) -> None:
        super().__init__(inner)
        self._texts = tuple(texts)
        self._lanes: dict[Lane, tuple[int, ...]] = {}
        self._launches: dict[int, tuple[LaneWindow, ...]] = {}

    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """As the port says; the prompt tells the text."""
        if span.start == 0:
            prompt = tuple(ids.tolist())
            self._lanes[lane] = next((text for text in self._texts if text[: len(prompt)] == prompt), ())
        return self.inner.prefill(lane, ids, span)

    def launch(self, batch: RoundBatch) -> Ticket:
        """As the port says."""
        ticket = self.inner.launch(batch)
        self._launches[ticket.id] = batch.windows
        return ticket

    def collect(self, ticket: Ticket) -> Draws:
        """As the port says, with the texts' tokens."""
        draws = self.inner.collect(ticket)
        windows = self._launches.pop(ticket.id, ())
        drawn = [self._followed(*pair) for pair in zip(windows, draws.tokens, strict=bool(windows))]
        return replace(draws, tokens=tuple(drawn)) if windows else draws

    def _followed(self, asked: LaneWindow, drawn: Sequence[int]) -> list[int]:
        text, window = self._lanes.get(asked.lane, ()), asked.window
        on_text: list[bool] = []
        found = list(drawn)
        for row, (token, parent, depth) in enumerate(zip(window.tokens, window.parents, window.depths(), strict=True)):
            at = asked.position + depth
            own = at + 1 < len(text) and text[at] == token and (parent < 0 or on_text[parent])
            on_text.append(own)
            if own and found[row] >= 0:
                found[row] = text[at + 1]
        return found


def words_of(text: str, vocabulary: int) -> tuple[int, ...]:
    """A text as ids: words, blanks and signs in the order of their first use, folded into the vocabulary."""
    known: dict[str, int] = {}
    return tuple(3 + known.setdefault(word, len(known)) % (vocabulary - 3) for word in _WORDS.findall(text))


def rewritten(source: Path, vocabulary: int, reply: int) -> tuple[tuple[int, ...], int]:
    """A file that is written again with a name changed in it, as ids, and how many of them are the prompt.

    The prompt is the file's beginning, the reply the same text with each `self` renamed: what an edit asks for.
    """
    text = source.read_text(encoding="utf-8")
    both = words_of(text + "\n" + text.replace("self", "this"), vocabulary)
    prompt = len(words_of(text + "\n", vocabulary))
    return both[: prompt + reply], prompt
