"""The load check: do rows of windows, of trees and of several lanes have the bits of serial steps, on this card, now.

It asks the model as an engine does, behind a short prompt and across the end of a page, and compares fingerprints of
logits. What does not hold is narrowed and said; the checks of kernels in the test suite are wider, this one catches a
card, driver or build on which they would not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tensorfold.adapters.cuda.rows import PAGE
from tensorfold.application.ports.target_model import CapacityError, Lane, LaneWindow, RoundBatch, Span, TargetModel
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import Window, chain, tree

SHORT, LONG = 37, 2 * PAGE - 24
"""Rows behind a short prompt read one page; those behind the long one two, then three."""
STEPS = 64
TREES = (
    (-1, 0, 0),
    (-1, 0, 0, 1, 1, 2, 3),
    (-1, 0, 1, 1, 0, 4, 4, 5, 2, 8),
    (-1, 0, 1, 1, 0, 4, 4, 5, 2, 8, 9, 9, 3, 7, 0, 14),
)
GREEDY = Sampling()
Prints = Sequence[int | None]


@dataclass(slots=True)
class Allowed:
    """What held: the widest chain, the widest tree, and whether lanes may share a launch."""

    chain: int
    tree: int
    shares: bool
    notes: list[str]


@dataclass(frozen=True, slots=True)
class _Found:
    """What held behind one prompt: `cut` tells of rows behind a window that was kept in part."""

    cut: bool
    chain: int
    failed: bool
    trees: bool
    shares: bool


class RowCheck:
    """Probes of one model whose lanes are all free."""

    def __init__(self, model: TargetModel, say: Callable[[str], None]) -> None:
        self._model, self._say = model, say

    def run(self) -> Allowed:
        """Probe, widest first."""
        limits = self._model.limits
        self._say("checking rows")
        prompts = [prompt for prompt in (SHORT, LONG) if prompt + STEPS < limits.context]
        # A window of a few tokens has room for one step behind what is left of a prompt.
        prompts = prompts or [max(1, min(SHORT, limits.context - 2))]
        found = [_Probes(self._model, prompt).run() for prompt in prompts]
        width = min(each.chain for each in found)
        trees = all(each.trees for each in found)
        shares = all(each.shares for each in found)
        notes = []
        if not all(each.cut for each in found):
            notes.append("Nothing is drafted: rows behind a window that is kept in part lose their bits here.")
        elif any(each.failed for each in found):
            notes.append(f"Windows are at most {width} rows: wider ones do not keep their rows' bits here.")
        if not trees:
            notes.append("Drafts are chains: rows of a tree do not keep their bits here.")
        if not shares:
            notes.append("Streams do not share launches: their rows do not keep their bits in company here.")
        return Allowed(width, min(limits.tree_width, width) if trees else 1, shares, notes)


class _Probes:
    """Launches behind a prompt of one length, whose rows are compared with serial ones."""

    def __init__(self, model: TargetModel, prompt: int) -> None:
        self._model, self._prompt = model, prompt
        limits = model.limits
        self._steps = max(1, min(STEPS, limits.chain_width, limits.context - prompt - 1))
        chance = np.random.default_rng(1201)
        self._text = chance.integers(0, limits.vocabulary, prompt + self._steps + 1)

    def run(self) -> _Found:
        """Probe, widest first."""
        limits = self._model.limits
        serial = self._serial()
        cut = self._cut(serial)
        width, failed = self._chains(serial) if cut else (1, False)
        shares = limits.max_streams < 2 or self._shared(serial)
        return _Found(cut, width, failed, self._trees(min(limits.tree_width, width)), shares)

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

    def _cut(self, serial: list[int | None]) -> bool:
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
        return list(rows) == serial[2:4]

    def _chains(self, serial: list[int | None]) -> tuple[int, bool]:
        """The widest chain whose rows are serial ones, and whether a wider one's are not."""
        lane, widest, failed = self._opened(), 1, False
        tokens = self._text[self._prompt :].tolist()
        for width in sorted({*range(2, min(17, self._steps + 1)), 24, 32, 48, self._steps}):
            if width > self._steps:
                break
            (rows,) = self._launch((lane, self._prompt, chain(tokens[0], tokens[1:width])))
            if list(rows) != serial[:width]:
                failed = True
                break
            widest = width
        self._model.close(lane)
        return widest, failed

    def _trees(self, widest: int) -> bool:
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
        return held

    def _shared(self, serial: list[int | None]) -> bool:
        lanes: list[Lane] = []
        with suppress(CapacityError):
            # Pools may have pages for fewer lanes of this length; lanes of which one alone fits share nothing.
            while len(lanes) < min(3, self._model.limits.max_streams):
                lanes.append(self._opened())
        tokens = self._text[self._prompt :].tolist()
        width = min(3, self._steps)
        windows = [(lane, self._prompt, chain(tokens[0], tokens[1 : 1 + at % width])) for at, lane in enumerate(lanes)]
        rows = self._launch(*windows)
        for lane in lanes:
            self._model.close(lane)
        return all(list(part) == serial[: len(part)] for part in rows)
