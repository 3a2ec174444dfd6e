"""Driving a model through its port for a check: lanes filled with prompts, rows launched, serial rows beside them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import Draws, Lane, LaneWindow, RoundBatch, Span, TargetModel, Ticket
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import Window, chain, tree

GREEDY = Sampling()
SETTINGS = (GREEDY, Sampling(seed=7, temperature=1.0), Sampling(seed=2**63 + 11, temperature=0.8, top_k=20, top_p=0.9))
ALL_MASKS = tuple[NDArray[np.uint32] | None, ...]


@dataclass(frozen=True, slots=True)
class ModelSubject:
    """A model under its contract.

    `strict` models raise on every misuse of the port, `pedantic` ones on misshapen values too; `masks` and `images`
    tell whether it has those calls yet.
    `effort` scales how many cases a check tries.
    """

    model: TargetModel
    strict: bool = False
    pedantic: bool = False
    masks: bool = True
    images: bool = True
    effort: int = 1

    @property
    def chain_width(self) -> int:
        """The widest chain that fits a launch."""
        return min(self.model.limits.chain_width, self.model.limits.batch_rows)

    @property
    def tree_width(self) -> int:
        """The widest tree that fits a launch."""
        return min(self.model.limits.tree_width, self.model.limits.batch_rows)


@dataclass(frozen=True, slots=True)
class Row:
    """What a row gave: its draw, and the digest of its logits where the model makes one."""

    draw: int
    digest: int | None


class Driver:
    """One lane, one prompt, driven by hand. The last prompt id stays pending."""

    def __init__(self, subject: ModelSubject, prompt: Sequence[int], lane: Lane | None = None) -> None:
        self.model = subject.model
        self.absorbed = len(prompt) - 1
        self.lane = self._filled(prompt) if lane is None else lane

    def _filled(self, prompt: Sequence[int]) -> Lane:
        lane = self.model.open(min(len(prompt) + 256, self.model.limits.context))
        if len(prompt) > 1:
            fill(self.model, lane, prompt, 0, len(prompt) - 1)
        return lane

    def window(self, window: Window, sampling: Sampling = GREEDY, masks: ALL_MASKS | None = None) -> LaneWindow:
        """The rows of this lane's next launch."""
        return LaneWindow(self.lane, self.absorbed, window, sampling, masks, audit=True)

    def look(self, window: Window, sampling: Sampling = GREEDY, masks: ALL_MASKS | None = None) -> list[Row]:
        """Rows of a launch of which nothing is kept."""
        ticket = self.model.launch(RoundBatch((self.window(window, sampling, masks),)))
        rows = rows_of(self.model.collect(ticket))[0]
        self.model.discard(ticket)
        return rows

    def take(self, window: Window, path: Sequence[int], sampling: Sampling = GREEDY) -> list[Row]:
        """Rows of a launch of which `path` is kept."""
        ticket = self.model.launch(RoundBatch((self.window(window, sampling),)))
        rows = rows_of(self.model.collect(ticket))[0]
        self.model.keep(ticket, [tuple(path)])
        self.absorbed += len(path)
        return rows

    def serial(self, tokens: Sequence[int], sampling: Sampling = GREEDY) -> list[Row]:
        """One-row launches, each kept: the rows that every other form must equal."""
        return [self.take(chain(token), (0,), sampling)[0] for token in tokens]

    def forked(self) -> Driver:
        """A driver of a fork of this lane."""
        copy = Driver.__new__(Driver)
        copy.model, copy.absorbed, copy.lane = self.model, self.absorbed, self.model.fork(self.lane)
        return copy

    def close(self) -> None:
        """Free the lane."""
        self.model.close(self.lane)


@contextmanager
def driving(subject: ModelSubject, *prompts: Sequence[int]) -> Iterator[list[Driver]]:
    """Drivers of filled lanes, all closed at the end with every lane opened meanwhile."""
    before = set(subject.model.lanes())
    try:
        yield [Driver(subject, prompt) for prompt in prompts]
    finally:
        for lane in subject.model.lanes():
            if lane not in before:
                subject.model.close(lane)


def fill(model: TargetModel, lane: Lane, prompt: Sequence[int], start: int, stop: int) -> Ticket:
    """Absorb prompt positions start..stop at once and wait for it."""
    ticket = model.prefill(lane, np.array(prompt, dtype=np.int64), Span(start, stop))
    model.collect(ticket)
    return ticket


def rows_of(draws: Draws) -> list[list[Row]]:
    """Draws and digests of a launch, by window and row."""
    windows = []
    for w, tokens in enumerate(draws.tokens):
        prints = draws.prints[w] if draws.prints else None
        windows.append([Row(int(t), prints[r] if prints is not None else None) for r, t in enumerate(tokens)])
    return windows


def texts(subject: ModelSubject, count: int, seed: int, least: int = 2, most: int = 40) -> list[list[int]]:
    """Random id sequences, the same for the same arguments."""
    rng = random.Random(seed)
    vocabulary = subject.model.limits.vocabulary
    return [[rng.randrange(vocabulary) for _ in range(rng.randint(least, most))] for _ in range(count)]


def random_tree(subject: ModelSubject, width: int, seed: int) -> Window:
    """A window of `width` rows, three or more, with random branches and twins among siblings; never a chain."""
    rng = random.Random(seed)
    vocabulary = subject.model.limits.vocabulary
    parents = [rng.randrange(max(0, row - 4), row) for row in range(1, width)]
    parents[1] = 0
    tokens = [rng.randrange(vocabulary) for _ in range(width)]
    for row in range(2, width):
        if parents[row - 1] == parents[row - 2] and rng.random() < 0.3:
            tokens[row] = tokens[row - 1]
    return tree(tokens[0], tokens[1:], parents)


def widths(most: int) -> list[int]:
    """Widths worth trying up to `most`: small ones, powers of two, the widest."""
    return sorted({w for w in (2, 3, 4, 5, 8, 12, 16, 32, 64, most) if 2 <= w <= most})
