"""Provisional rows of the hash model: each row's state from its parent's, checked against the port's rules."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import LaneWindow, ModelLimits, Path, Ticket
from tensorfold.domain.sampling import Sampling
from tests.fakes.hash_lanes import HashLane
from tests.fakes.hash_law import MIX_A, MIX_B, STATE_STEP, WORD
from tests.fakes.misuse import MisuseError

ticket_ids: Iterator[int] = itertools.count(1)
"""One sequence for all hash models: a ticket of another model is never mistaken for one's own."""


@dataclass(slots=True)
class PlannedWindow:
    """One lane's rows: `states[r]` after row r's token, `positions[r]` of that token, `first` its row in the launch."""

    lane: int
    first: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    forced: int
    states: list[int]
    positions: Sequence[int]
    sampling: Sampling
    masks: tuple[NDArray[np.uint32] | None, ...] | None
    audit: bool

    @property
    def is_chain(self) -> bool:
        """Whether every row follows the row before it."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))

    def check_path(self, path: Path) -> None:
        """Raise unless every row follows the one before it and the first is row 0."""
        before = -1
        for row in path:
            if not 0 <= row < len(self.tokens) or self.parents[row] != before:
                raise MisuseError(f"path {tuple(path)} of lane {self.lane} does not follow the window's rows")
            before = row


@dataclass(slots=True)
class DrawnRows:
    """The rows of a launch that draw, gathered: one entry per row."""

    states: NDArray[np.uint64]
    tokens: list[int]
    draw_positions: list[int]
    samplings: list[Sampling]
    masks: list[tuple[int, NDArray[np.uint32]]]
    windows: tuple[PlannedWindow, ...]

    def split(self, draws: list[int]) -> tuple[Sequence[int], ...]:
        """Draws by window, -1 where a row was forced."""
        parts: list[Sequence[int]] = []
        at = 0
        for window in self.windows:
            count = len(window.tokens) - window.forced
            parts.append([-1] * window.forced + draws[at : at + count])
            at += count
        return tuple(parts)

    def prints(self, logits: NDArray[np.float32]) -> tuple[Sequence[int] | None, ...]:
        """Digests of the logits [R, V] by window, for those that asked; nothing when none did."""
        if not any(window.audit for window in self.windows):
            return ()
        parts: list[Sequence[int] | None] = []
        at = 0
        for window in self.windows:
            count = len(window.tokens) - window.forced
            parts.append([0] * window.forced + [_digest(r) for r in logits[at : at + count]] if window.audit else None)
            at += count
        return tuple(parts)


def _digest(row: NDArray[np.float32]) -> int:
    return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little")


@dataclass(slots=True)
class HashLaunch:
    """A launch: its windows, then its draws, then the paths kept."""

    ticket: Ticket
    windows: tuple[PlannedWindow, ...]
    draws: tuple[Sequence[int], ...] | None = None
    prints: tuple[Sequence[int] | None, ...] = ()
    paths: tuple[Path, ...] | None = None

    def rows(self) -> DrawnRows:
        """The rows that draw: all but those whose next token is forced."""
        states: list[int] = []
        tokens: list[int] = []
        positions: list[int] = []
        samplings: list[Sampling] = []
        masks: list[tuple[int, NDArray[np.uint32]]] = []
        for w in self.windows:
            skip = w.forced
            if w.masks is not None:
                at = len(states) - skip
                masks.extend((at + r, m) for r, m in enumerate(w.masks) if m is not None and r >= skip)
            states += w.states[skip:] if skip else w.states
            tokens += w.tokens[skip:] if skip else w.tokens
            positions += [p + 1 for p in (w.positions[skip:] if skip else w.positions)]
            samplings += [w.sampling] * (len(w.tokens) - skip)
        return DrawnRows(np.array(states, dtype=np.uint64), tokens, positions, samplings, masks, self.windows)


def plan_window(asked: LaneWindow, lane: HashLane, limits: ModelLimits, first: int) -> PlannedWindow:
    """Hash the rows of one window from the lane's committed state. Raises MisuseError on any broken rule."""
    window = asked.window
    tokens, parents = window.tokens, window.parents
    is_chain = window.is_chain
    width = len(tokens)
    most = limits.chain_width if is_chain else limits.tree_width
    if not 0 < width <= most:
        raise MisuseError(f"a {'chain' if is_chain else 'tree'} of {width} rows; the limit is {most}")
    if min(tokens) < 0 or max(tokens) >= limits.vocabulary:
        raise MisuseError(f"a window holds an id outside 0..{limits.vocabulary - 1}")
    _check_shape(asked, is_chain, limits)
    positions: Sequence[int] = (
        range(asked.position, asked.position + width) if is_chain else [asked.position + d for d in window.depths()]
    )
    if max(positions) >= lane.capacity:
        raise MisuseError(f"lane {asked.lane} can absorb {lane.capacity} tokens, a row stands at {max(positions)}")
    states = _hash_chain(lane.state, tokens) if is_chain else _hash_tree(lane.state, tokens, parents)
    return PlannedWindow(
        asked.lane, first, tokens, parents, window.forced, states, positions, asked.sampling, asked.masks, asked.audit
    )


def _check_shape(asked: LaneWindow, is_chain: bool, limits: ModelLimits) -> None:
    window, masks = asked.window, asked.masks
    width = len(window.tokens)
    if len(window.parents) != width or window.parents[0] != -1:
        raise MisuseError("a window's parents do not fit its tokens")
    if not is_chain and not all(0 <= parent < row for row, parent in enumerate(window.parents[1:], start=1)):
        raise MisuseError("a row of a window follows one that does not stand before it")
    if window.forced:
        if not 0 < window.forced < width:
            raise MisuseError(f"{window.forced} forced rows in a window of {width}")
        fed, drafts = window.parents[1 : window.forced + 1], window.parents[window.forced + 1 :]
        if fed != tuple(range(window.forced)) or any(parent < window.forced for parent in drafts):
            raise MisuseError("forced rows are not one chain above every draft")
    if masks is not None:
        words = (limits.vocabulary + 31) // 32
        if len(masks) != width or any(m is not None and (m.dtype != np.uint32 or m.shape != (words,)) for m in masks):
            raise MisuseError(f"masks need {width} rows of {words} uint32 words")
        if any(m is not None and not m.any() for m in masks):
            raise MisuseError("a mask allows no token at all")


def _hash_chain(state: int, tokens: Sequence[int]) -> list[int]:
    # `absorb`, written out: this is the hottest loop of a proof of millions of tokens.
    states: list[int] = []
    for token in tokens:
        x = (state * STATE_STEP + token + 1) & WORD
        x ^= x >> 30
        x = (x * MIX_A) & WORD
        x ^= x >> 27
        x = (x * MIX_B) & WORD
        state = x ^ (x >> 31)
        states.append(state)
    return states


def _hash_tree(root: int, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
    states: list[int] = []
    for token, parent in zip(tokens, parents, strict=True):
        states += _hash_chain(states[parent] if parent >= 0 else root, (token,))
    return states
