"""Faults of the kinds that state invites, planted into a loaded family, and who must notice each.

A fault is a context manager that patches the adapter's own classes. `walk`: windows and serial steps part. `oracle`:
logits part from the float64 reference, since windows and steps are wrong alike. `head`: what a head holds or drafts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import numpy as np

from tensorfold.adapters.mlx.blocks import router
from tensorfold.adapters.mlx.blocks.key_values_cpu import CpuKeyValues
from tensorfold.adapters.mlx.blocks.ngram import TokenTail
from tensorfold.adapters.mlx.blocks.past_rows import PastRows
from tensorfold.adapters.mlx.blocks.recurrence import RecurrentState
from tensorfold.adapters.mlx.blocks.short_conv import ConvState
from tensorfold.adapters.mlx.heads.mtp import MtpDrafts
from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.adapters.mlx.weights import WeightReader

Plant = Callable[[], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, the families that hold such state, and where it must be noticed."""

    name: str
    families: tuple[str, ...]
    plant: Plant
    noticed_by: Literal["walk", "oracle", "head"] = "walk"


def _around(target: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Plant:
    """Replace a method by one made of the sound one."""
    return lambda: mock.patch.object(target, name, make(getattr(target, name)))


def _tail_off_by_one(keep: Callable[..., Any]) -> Callable[..., Any]:
    def kept(self: Any, path: Any) -> None:
        before = self._tail
        keep(self, path)
        if len(path) > 1:
            seen: Any = self._tail
            self._tail = self._ops.join([before[-1:], seen[:-1]])

    return kept


def _rejected_rows_stay(keep: Callable[..., Any]) -> Callable[..., Any]:
    def kept(self: Any, path: Any) -> None:
        behind = self._behind
        keep(self, path)
        self._held = behind

    return kept


def _ring_overwritten(keep: Callable[..., Any]) -> Callable[..., Any]:
    """As if rows had been written into a ring of exactly one window: rejected ones cost its oldest keys."""

    def kept(self: Any, path: Any) -> None:
        rejected = 0 if self._window is None else len(self._window[0]) - len(path)
        keep(self, path)
        if not self._op.window:
            return
        for back in range(rejected):
            at = self.length - self._op.window + 1 + back - self._first
            if 0 <= at < self._keys.shape[1]:
                self._keys[:, at] = 0.0

    return kept


@contextlib.contextmanager
def _block_left_behind() -> Iterator[None]:
    """A block that only rejected rows completed is taken for done, and not pooled again when its last token comes."""
    keep, put, stale = PastRows.keep, PastRows.put, {}

    def kept(self: Any, path: Any) -> None:
        rows, done = self._window, len(self._own(path))
        if self._per > 1:
            stale[id(self)] = rows[done] if rows is not None and rows.shape[0] > done else None
        keep(self, path)

    def placed(self: Any, rows: Any, layout: Any, places: Any = None) -> None:
        old = stale.pop(id(self), None)
        if old is not None and rows.shape[0] > 0:
            rows = self._ops.join([old[None], rows[1:]])
        put(self, rows, layout, places)

    with mock.patch.object(PastRows, "keep", kept), mock.patch.object(PastRows, "put", placed):
        yield


def _one_entry_short(keep: Callable[..., Any]) -> Callable[..., Any]:
    def kept(self: Any, path: Any) -> None:
        keep(self, path[1:] if len(path) > 2 else path)
        self.length += 1 if len(path) > 2 else 0

    return kept


def _history_stale(keep: Callable[..., Any]) -> Callable[..., Any]:
    def kept(self: Any, path: Any) -> None:
        keep(self, path[:1])
        self.length += len(path) - 1

    return kept


def _ties_by_place(best: Callable[..., Any]) -> Callable[..., Any]:
    """Of equal scores the lower id in the first row, the higher one in the others."""

    def chosen(xp: Any, scores: Any, count: int) -> Any:
        made = np.array(best(xp, scores, count))
        turned = scores.shape[-1] - 1 - np.array(best(xp, scores[..., ::-1], count))
        return xp.array(np.concatenate([made[:1], turned[1:]], axis=0))

    return chosen


def _drafts_left_in(chain: Callable[..., Any]) -> Callable[..., Any]:
    def drafted(self: Any, lane: Any, spec: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for kind in {type(state) for state in lane.states}:
                stack.enter_context(mock.patch.object(kind, "fork", lambda state: state))
            return chain(self, lane, spec)

    return drafted


@contextlib.contextmanager
def _reading_siblings() -> Iterator[None]:
    """Every window is taken for a chain, so that a row reads whatever stands before it."""
    with mock.patch.object(Layout, "is_chain", property(lambda self: True)):
        yield


FAULTS = (
    Fault(
        "a convolution's tail off by one",
        ("qwen3_5", "nemotron_h", "glm5_next", "qwen4_exp"),
        _around(ConvState, "keep", _tail_off_by_one),
    ),
    Fault(
        "the recurrent state of a rejected row kept",
        ("qwen3_5", "nemotron_h", "glm5_next", "qwen4_exp"),
        _around(RecurrentState, "keep", _rejected_rows_stay),
    ),
    Fault(
        "a node of a tree reading its sibling",
        ("qwen3_5", "nemotron_h", "gemma4", "glm5_next", "qwen4_exp"),
        _reading_siblings,
    ),
    Fault("a ring overwritten by rejected rows", ("gemma4",), _around(CpuKeyValues, "keep", _ring_overwritten)),
    Fault("a pooled block left behind", ("glm5_next", "qwen4_exp"), _block_left_behind),
    Fault("a cached row lost", ("glm5_next", "qwen4_exp"), _around(PastRows, "keep", _one_entry_short)),
    Fault("an n-gram history gone stale", ("qwen4_exp",), _around(TokenTail, "keep", _history_stale)),
    Fault(
        "a router's ties broken by place",
        ("nemotron_h", "gemma4", "glm5_next", "qwen4_exp"),
        _around(router, "best", _ties_by_place),
    ),
    Fault(
        "the norms' convention guessed wrong",
        ("qwen3_5", "qwen4_exp"),
        _around(WeightReader, "_adds_one", lambda sound: lambda self, found: not sound(self, found)),
        "oracle",
    ),
    Fault(
        "drafted entries of a head not trimmed",
        ("qwen3_5", "nemotron_h", "glm5_next", "qwen4_exp"),
        _around(MtpDrafts, "chain", _drafts_left_in),
        "head",
    ),
)
