"""The load check: do rows of windows, of trees and of several lanes have the bits of serial steps, on this card, now.

It asks the model as an engine does, and compares fingerprints of logits. What does not hold is narrowed and said; the
checks of kernels in the test suite are wider, this one catches a card, driver or build on which they would not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tensorfold.application.ports.target_model import Lane, LaneWindow, RoundBatch, Span, TargetModel
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import Window, chain, tree

PROMPT = 37
STEPS = 64
TREES = ((-1, 0, 0, 1, 1, 2, 3), (-1, 0, 1, 1, 0, 4, 4, 5, 2, 8))
GREEDY = Sampling()
Prints = Sequence[int | None]


@dataclass(slots=True)
class Allowed:
    """What held: the widest chain, the widest tree, and whether lanes may share a launch."""

    chain: int
    tree: int
    shares: bool
    notes: list[str]


class RowCheck:
    """Probes of one model whose lanes are all free."""

    def __init__(self, model: TargetModel, say: Callable[[str], None]) -> None:
        self._model, self._say = model, say
        limits = model.limits
        spare = limits.context - PROMPT - 1
        self._steps = max(1, min(STEPS, limits.chain_width, spare))
        chance = np.random.default_rng(1201)
        self._text = chance.integers(0, limits.vocabulary, PROMPT + self._steps + 1)
        self._prompt = min(PROMPT, limits.context - self._steps)

    def run(self) -> Allowed:
        """Probe, widest first."""
        limits = self._model.limits
        self._say("checking rows")
        serial = self._serial()
        notes: list[str] = []
        width = self._chains(serial, notes) if self._cut(serial, notes) else 1
        shares = limits.max_streams < 2 or self._shared(serial, notes)
        return Allowed(width, self._trees(min(limits.tree_width, width), notes), shares, notes)

    def _opened(self) -> Lane:
        model = self._model
        lane = model.open(self._prompt + self._steps + 1)
        model.collect(model.prefill(lane, self._text.astype(np.int64), Span(0, self._prompt)))
        return lane

    def _launch(self, *windows: tuple[Lane, int, Window]) -> list[Prints]:
        model = self._model
        asked = tuple(LaneWindow(lane, at, window, GREEDY, audit=True) for lane, at, window in windows)
        ticket = model.launch(RoundBatch(asked))
        prints = list(model.collect(ticket).prints)
        model.keep(ticket, [() for _ in windows])
        return [part or () for part in prints]

    def _step(self, lane: Lane, at: int, token: int) -> int | None:
        model = self._model
        ticket = model.launch(RoundBatch((LaneWindow(lane, at, chain(token), GREEDY, audit=True),)))
        prints = model.collect(ticket).prints[0]
        model.keep(ticket, [(0,)])
        return prints[0] if prints else None

    def _serial(self) -> list[int | None]:
        lane = self._opened()
        tokens = self._text[self._prompt : self._prompt + self._steps].tolist()
        rows = [self._step(lane, self._prompt + at, token) for at, token in enumerate(tokens)]
        self._model.close(lane)
        return rows

    def _cut(self, serial: list[int | None], notes: list[str]) -> bool:
        """Whether rows behind a window that was kept in part have the bits of serial steps."""
        if self._steps < 4:
            return True
        lane, model = self._opened(), self._model
        tokens = self._text[self._prompt :].tolist()
        window = LaneWindow(lane, self._prompt, chain(tokens[0], tokens[1:4]), GREEDY)
        ticket = model.launch(RoundBatch((window,)))
        model.collect(ticket)
        model.keep(ticket, [(0, 1)])
        (rows,) = self._launch((lane, self._prompt + 2, chain(tokens[2], tokens[3:4])))
        model.close(lane)
        held = list(rows) == serial[2:4]
        if not held:
            notes.append("Nothing is drafted: rows behind a window that is kept in part lose their bits here.")
        return held

    def _chains(self, serial: list[int | None], notes: list[str]) -> int:
        lane, widest = self._opened(), 1
        tokens = self._text[self._prompt :].tolist()
        for width in sorted({*range(2, min(17, self._steps + 1)), 24, 32, 48, self._steps}):
            if width > self._steps:
                break
            (rows,) = self._launch((lane, self._prompt, chain(tokens[0], tokens[1:width])))
            if list(rows) != serial[:width]:
                notes.append(f"Windows are at most {widest} rows: wider ones do not keep their rows' bits here.")
                break
            widest = width
        self._model.close(lane)
        return widest

    def _trees(self, widest: int, notes: list[str]) -> int:
        lane, held = self._opened(), True
        tokens = self._text[self._prompt :].tolist()
        for parents in TREES:
            if len(parents) > min(widest, self._steps):
                continue
            window = tree(tokens[0], tokens[1 : len(parents)], parents[1:])
            (rows,) = self._launch((lane, self._prompt, window))
            for row in range(len(parents)):
                way = [window.tokens[each] for each in window.path_to(row)]
                (alone,) = self._launch((lane, self._prompt, chain(way[0], way[1:])))
                held = held and rows[row] == alone[-1]
        self._model.close(lane)
        if not held:
            notes.append("Drafts are chains: rows of a tree do not keep their bits here.")
        return widest if held else 1

    def _shared(self, serial: list[int | None], notes: list[str]) -> bool:
        count = min(3, self._model.limits.max_streams)
        lanes = [self._opened() for _ in range(count)]
        tokens = self._text[self._prompt :].tolist()
        width = min(3, self._steps)
        windows = [(lane, self._prompt, chain(tokens[0], tokens[1 : 1 + at % width])) for at, lane in enumerate(lanes)]
        rows = self._launch(*windows)
        for lane in lanes:
            self._model.close(lane)
        held = all(list(part) == serial[: len(part)] for part in rows)
        if not held:
            notes.append("Streams do not share launches: their rows do not keep their bits in company here.")
        return held
