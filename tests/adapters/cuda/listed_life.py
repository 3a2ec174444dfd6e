"""A random life of a listed model: lanes that come, fork, leave and come back, rounds of all forms, every row checked.

What a row must draw follows from its own history alone, and is read from a prompt on a lane of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorfold.adapters.cuda.sampler import RowDraw
from tensorfold.application.ports.target_model import (
    CapacityError,
    LaneImage,
    LaneWindow,
    Path,
    ProposeSpec,
    RoundBatch,
    Span,
    Ticket,
)
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import Window, chain, tree
from tests.adapters.cuda.listed_decoder import VOCABULARY, drawn, logits_of
from tests.adapters.cuda.listed_model import CONTEXT, Listed, expected_drafts, ids, read

SETTINGS = (Sampling(), Sampling(seed=7, temperature=1.0), Sampling(seed=2**63 + 11, temperature=0.8, top_p=0.9))


@dataclass(slots=True, eq=False)
class Known:
    """A lane, and what it should have absorbed; `awake` once it holds a slot, `drafts` while its head is well."""

    lane: int
    history: list[int]
    capacity: int
    sampling: Sampling
    awake: bool = True
    drafts: bool = True
    next: int = 5


@dataclass(slots=True)
class Flight:
    """A launch that is not settled."""

    ticket: Ticket
    lanes: list[Known]
    windows: list[LaneWindow]
    gone: set[int] = field(default_factory=set)
    draws: list[Sequence[int]] | None = None


class Life:
    """What may happen to a model, by chance. `adopted` counts rounds that were queued ahead and then asked for."""

    def __init__(self, listed: Listed, seed: int) -> None:
        self.listed, self.model = listed, listed.model
        self.chance = random.Random(seed)
        self.lanes: list[Known] = []
        self.images: list[tuple[LaneImage, list[int], bool]] = []
        self.flights: list[Flight] = []
        self.free = listed.held
        self.adopted = self.rows = self.refused = 0

    def run(self, events: int) -> None:
        """Let things happen, then close everything: nothing may be left."""
        for _ in range(events):
            self.happen()
        while self.flights:
            self.settle(self.flights.pop())
        self.check_drafts()
        for known in list(self.lanes):
            self.close(known)
        assert self.model.lanes() == () and self.listed.held == self.free

    def happen(self) -> None:
        """One event."""
        quiet = [known for known in self.lanes if not self.in_flight(known)]
        what = self.chance.random()
        if what < 0.06 or not self.lanes:
            self.open()
        elif what < 0.09:
            self.close(self.chance.choice(self.lanes))
        elif what < 0.13 and quiet:
            self.fork(self.chance.choice(quiet))
        elif what < 0.17 and quiet:
            self.resume(self.chance.choice(quiet))
        elif what < 0.20 and quiet:
            self.export(self.chance.choice(quiet))
        elif what < 0.22 and self.images:
            self.restore()
        elif what < 0.26 and quiet:
            self.prefill(self.chance.choice(quiet))
        elif what < 0.30:
            self.check_drafts()
        elif what < 0.45 and quiet and not self.flights:
            self.go_on(quiet)
        elif what < 0.55 and quiet and not self.flights:
            self.go_on_drafting(quiet)
        elif what < 0.80 and quiet and len(self.flights) < 2:
            self.launch(self.chance.sample(quiet, self.chance.randint(1, min(3, len(quiet)))))
        elif self.flights:
            self.settle(self.flights.pop(self.chance.randrange(len(self.flights))))

    def in_flight(self, known: Known) -> bool:
        """Whether a launch of a lane is not settled."""
        return any(known in flight.lanes and known.lane not in flight.gone for flight in self.flights)

    # -- lanes ---------------------------------------------------------------------------------------------------

    def tokens(self, count: int) -> list[int]:
        """Random ids."""
        return [self.chance.randrange(VOCABULARY) for _ in range(count)]

    def add(self, lane: int, history: Sequence[int], capacity: int, drafts: bool = True, awake: bool = True) -> Known:
        """A lane that was had."""
        known = Known(lane, list(history), capacity, self.chance.choice(SETTINGS), awake, drafts)
        self.lanes.append(known)
        return known

    def open(self) -> None:
        """A lane, with some prompt absorbed or none."""
        capacity = self.chance.choice([40, 300, 700])
        try:
            known = self.add(self.model.open(capacity), [], capacity)
        except CapacityError:
            self.refused += 1
            return
        for _ in range(self.chance.randrange(3)):
            self.prefill(known)

    def close(self, known: Known) -> None:
        """A lane leaves, in the middle of a launch perhaps."""
        self.model.close(known.lane)
        self.lanes.remove(known)
        for flight in self.flights:
            if known in flight.lanes:
                flight.gone.add(known.lane)

    def fork(self, known: Known) -> None:
        """A kept state."""
        try:
            lane = self.model.fork(known.lane)
        except CapacityError:
            self.refused += 1
            return
        self.add(lane, known.history, known.capacity, known.drafts, awake=False)

    def resume(self, known: Known) -> None:
        """A lane behind another's state, kept or not."""
        capacity = self.chance.choice([40, 300, 700, CONTEXT])
        try:
            lane = self.model.resume(known.lane, capacity)
        except CapacityError:
            self.refused += 1
            return
        assert len(known.history) <= capacity
        self.add(lane, known.history, capacity, known.drafts)

    def export(self, known: Known) -> None:
        """An image."""
        self.images.append((self.model.export(known.lane), list(known.history), known.drafts))
        self.images = self.images[-4:]

    def restore(self) -> None:
        """A lane of an image."""
        image, history, drafts = self.chance.choice(self.images)
        try:
            lane = self.model.restore(image, len(history) + 50)
        except CapacityError:
            self.refused += 1
            return
        self.add(lane, history, len(history) + 50, drafts)

    def prefill(self, known: Known) -> None:
        """Another span, now and then to the end of a page."""
        left = known.capacity - len(known.history) - 2
        count = self.chance.choice([1, 2, 3, 4, 9, 17, 512 - len(known.history), 511 - len(known.history)])
        if not 0 < count <= left:
            return
        text, start = [*known.history, *self.tokens(count)], len(known.history)
        try:
            ticket = self.model.prefill(known.lane, ids(text), Span(start, len(text)))
        except CapacityError:
            assert not known.awake
            return
        if self.chance.random() < 0.5:
            self.model.collect(ticket)
        known.awake, known.history = True, text

    def check_drafts(self) -> None:
        """A head answers from all that its lane absorbed, or not at all once it failed."""
        if self.listed.head is None:
            return
        for known in self.lanes:
            if not self.in_flight(known):
                self.check_draft(known, 3)

    def check_draft(self, known: Known, depth: int) -> None:
        """The head's answer behind one lane."""
        if self.listed.head is None:
            return
        spec = ProposeSpec(known.lane, known.next, depth, known.sampling)
        (offer,) = self.model.propose([spec])
        assert offer == (expected_drafts(known.history, spec) if known.drafts else None)

    # -- rounds --------------------------------------------------------------------------------------------------

    def go_on(self, quiet: Sequence[Known]) -> None:
        """Some streams take rows one by one, the tokens that they draw; now and then something comes between."""
        streams = self.chance.sample(quiet, self.chance.randint(1, min(3, len(quiet))))
        for _ in range(self.chance.randint(2, 7)):
            streams = [known for known in streams if known in self.lanes]
            if self.chance.random() < 0.1:
                self.chance.shuffle(streams)
            if self.chance.random() < 0.1:
                streams = streams[:-1]
            if streams and self.chance.random() < 0.15:
                streams[-1].sampling = self.chance.choice(SETTINGS)
            flight = self.launch(streams, plain=True) if streams else None
            if flight is None:
                return
            self.flights.remove(flight)
            self.settle(flight, whole=self.chance.random() < 0.92)
            between = self.chance.random()
            if between < 0.25:
                others = [known for known in self.lanes if between < 0.1 or known not in streams]
                act = self.chance.choice([self.fork, self.prefill, self.export, self.resume, self.close])
                if others:
                    act(self.chance.choice(others))
            elif between < 0.3:
                self.open()

    def go_on_drafting(self, quiet: Sequence[Known]) -> None:
        """Some streams ask their heads before every round; now and then something comes between."""
        streams = self.chance.sample(quiet, self.chance.randint(1, min(3, len(quiet))))
        for _ in range(self.chance.randint(3, 7)):
            streams = [known for known in streams if known in self.lanes]
            for known in streams:
                if self.chance.random() < 0.95:
                    self.check_draft(known, 2 if self.chance.random() < 0.9 else 3)
            flight = self.launch(streams) if streams else None
            if flight is None:
                return
            self.flights.remove(flight)
            self.settle(flight, follows=self.chance.random() < 0.9)
            between = self.chance.random()
            if streams and between < 0.2:
                act = self.chance.choice([self.fork, self.prefill, self.export, self.resume, self.close])
                act(self.chance.choice(streams))

    def window(self, known: Known, plain: bool) -> LaneWindow | None:
        """Rows for a lane."""
        room = known.capacity - len(known.history)
        widest = min(self.model.limits.chain_width, room, 20)
        if widest < 1:
            return None
        first = known.next if self.chance.random() < (0.95 if plain else 0.5) else self.tokens(1)[0]
        size = 1 if plain or self.chance.random() < 0.2 else self.chance.randint(1, widest)
        rest, kind = self.tokens(size - 1), self.chance.random()
        window = chain(first, rest)
        if 3 <= size <= 16 and kind < 0.4:
            window = tree(first, rest, [self.chance.randint(max(0, at - 3), at) for at in range(size - 1)])
        elif size > 1 and kind < 0.5:
            forced = self.chance.randrange(size)
            window = chain(first, rest[forced:], rest[:forced])
        masks = None
        if self.chance.random() < 0.08:
            masks = tuple(self.mask() if self.chance.random() < 0.5 else None for _ in range(size))
        return LaneWindow(known.lane, len(known.history), window, known.sampling, masks, self.chance.random() < 0.05)

    def mask(self) -> Any:
        """A few allowed ids."""
        words = np.zeros((VOCABULARY + 31) // 32, np.uint32)
        for token in self.chance.sample(range(VOCABULARY), 5):
            words[token // 32] |= np.uint32(1 << token % 32)
        return words

    def launch(self, streams: Sequence[Known], *, plain: bool = False) -> Flight | None:
        """A launch of some lanes; a fork may find no slot."""
        asked = [(known, self.window(known, plain)) for known in streams]
        pairs = [(known, window) for known, window in asked if window is not None]
        batch = RoundBatch(tuple(window for _, window in pairs))
        if not pairs or batch.rows > self.model.limits.batch_rows:
            return None
        ahead = self.model._ahead
        adopted = ahead is not None and ahead.is_asked(batch)
        try:
            ticket = self.model.launch(batch)
        except CapacityError:
            assert any(not known.awake for known, _ in pairs)
            return None
        self.adopted += adopted
        for known, _ in pairs:
            known.awake = True
        flight = Flight(ticket, [known for known, _ in pairs], list(batch.windows))
        self.flights.append(flight)
        return flight

    def settle(self, flight: Flight, *, whole: bool | None = None, follows: bool = False) -> None:
        """Collect a launch and check its rows, then keep a path of each window or forget all.

        One that `follows` keeps what the draws let stand.
        """
        if whole is None and not follows and self.chance.random() < 0.07:
            self.model.discard(flight.ticket)
            return
        draws = self.model.collect(flight.ticket)
        paths: list[Path] = []
        for at, (known, asked) in enumerate(zip(flight.lanes, flight.windows, strict=True)):
            self.check(known.history, asked, draws.tokens[at])
            path = self.path(asked.window, whole)
            if follows:
                path = accept(asked.window, draws.tokens[at], 99, frozenset()).path
            paths.append(() if known.lane in flight.gone else path)
        if whole is False and self.chance.random() < 0.5:
            self.model.discard(flight.ticket)
            return
        self.model.keep(flight.ticket, paths)
        for known, asked, path, tokens in zip(flight.lanes, flight.windows, paths, draws.tokens, strict=True):
            known.history += [asked.window.tokens[row] for row in path]
            if path and tokens[path[-1]] >= 0:
                known.next = tokens[path[-1]]

    def path(self, window: Window, whole: bool | None) -> Path:
        """The rows that stay."""
        kind = self.chance.random()
        if whole is False or (whole is None and kind < 0.12):
            return ()
        end = len(window) - 1 if whole or kind < 0.5 else self.chance.randrange(len(window))
        return window.path_to(end)

    def check(self, history: Sequence[int], asked: LaneWindow, tokens: Sequence[int]) -> None:
        """Every row of a window draws what its own way says."""
        window, start = asked.window, len(history)
        leaves = set(range(len(window))) - set(window.parents)
        for leaf in sorted(leaves):
            way = window.path_to(leaf)
            logits = logits_of(read((*history, *(window.tokens[row] for row in way)))[0][start:], VOCABULARY)
            for place, row in enumerate(way):
                self.rows += 1
                if row < window.forced:
                    assert tokens[row] == -1
                    continue
                mask = None if asked.masks is None else asked.masks[row]
                assert tokens[row] == drawn(logits[place], RowDraw(start + place + 1, asked.sampling, mask)), row
