"""What of a run is worth adding to the record: the ids it does not hold, with enough around them to be found and left.

Knows ids and what the index says is held. What is held may lie in several pieces, as a text does that was cut at a
chunk's end or that was itself added in part: pieces that share KEY_IDS ids or more count as one, since a copy passes
from one to the next by those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from tensorfold.domain.recall.index import Held
from tensorfold.domain.recall.layout import HELD_IDS, KEY_IDS, LEAD_IDS, LEAST_RUN, TAIL_IDS, Ids

ANCHOR_IDS = HELD_IDS - KEY_IDS
"""Distance of the places asked about: wherever HELD_IDS ids are held, a key that begins at one lies among them."""


class Span(NamedTuple):
    """Ids of a run from `start` up to `stop`."""

    start: int
    stop: int


class Holds(Protocol):
    """Tells what the record holds of a run."""

    @property
    def vocabulary(self) -> int:
        """Ids are 0 .. `vocabulary` - 1."""
        ...

    def held(self, run: Ids, at: int, since: int) -> Held:
        """See RecordIndex.held."""
        ...


@dataclass(frozen=True, slots=True)
class Pieces:
    """What of a run is to be stored. `added` ids of it are new and `held` ones are there; both leave out separators.

    A piece has up to LEAD_IDS held ids before its new ones and up to TAIL_IDS after; these count as held, once.
    """

    pieces: tuple[Ids, ...]
    added: int
    held: int


def novel(run: Ids, index: Holds) -> Pieces:
    """The pieces of `run` to store: all but HELD_IDS and more that are held, and nothing of a text held whole.

    Whatever is no id of the vocabulary divides the run, as a separator would; stretches below LEAST_RUN ids are left
    out and counted nowhere. Pieces are views of `run`. Time: one look for each ANCHOR_IDS ids, and one for each end
    of what is held.
    """
    pieces: list[Ids] = []
    added = total = 0
    for text in _stretches(run, index.vocabulary):
        total += len(text)
        for start, stop in _between(_held(text, index), len(text)):
            added += stop - start
            # Spans that are left out are longer than a lead and a tail together: pieces of a run never touch.
            pieces.append(text[max(0, start - LEAD_IDS) : stop + TAIL_IDS])
    return Pieces(tuple(pieces), added, total - added)


def _stretches(run: Ids, vocabulary: int) -> Iterator[Ids]:
    """The parts of a run between what is no id, those that are long enough to be of use."""
    breaks = np.flatnonzero((run < 0) | (run >= vocabulary)).tolist()
    for before, stop in pairwise([-1, *breaks, len(run)]):
        if stop - before > LEAST_RUN:
            yield run[before + 1 : stop]


def _held(text: Ids, index: Holds) -> list[Span]:
    """What of a text is not added again, in order."""
    spans: list[Span] = []
    at = since = 0
    while at + KEY_IDS <= len(text):
        start, stop, cut = index.held(text, at, since)
        if stop > at:
            start = _earlier(text, index, start, since)
            if spans and start == since:
                start = spans.pop().start
            spans.append(Span(start, stop))
            since = stop - KEY_IDS
        anchor = (at // ANCHOR_IDS + 1) * ANCHOR_IDS
        if stop > at + KEY_IDS:
            # The last key of what is held may go on in another piece.
            at = stop - KEY_IDS
        else:
            # Where a key is too common for all its places to be looked at, the next one tells more.
            at = min(at + KEY_IDS, anchor) if cut else anchor
    return [span for span in spans if span.stop - span.start >= HELD_IDS or span == (0, len(text))]


def _earlier(text: Ids, index: Holds, start: int, since: int) -> int:
    """Where what is held from `start` on begins, when other pieces end with its first ids; not before `since`."""
    while start > since:
        before = index.held(text, start, since).start
        if before == start:
            break
        start = before
    return start


def _between(spans: list[Span], stop: int) -> Iterator[Span]:
    """What lies before, between and after `spans`, up to `stop`."""
    at = 0
    for span in spans:
        if at < span.start:
            yield Span(at, span.start)
        at = span.stop
    if at < stop:
        yield Span(at, stop)
