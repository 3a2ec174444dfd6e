"""Faults planted in a loaded decoder: one unit in the last place of every output of its first block.

Each is a context manager that patches the adapter's own classes, so whatever is loaded inside it carries the fault.
Prompts are read soundly; only launches drift, and only those of the kind that is named.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tensorfold.adapters.mlx import loader
from tensorfold.adapters.mlx.check_cache import CheckCache
from tensorfold.adapters.mlx.forward import Forward, LanePart
from tensorfold.adapters.mlx.model import MlxModel

WIDE = 4
Parts = Sequence[LanePart[Any]]


def one_ulp_up(rows: Any) -> Any:
    """Every value moved to the next float32 above it."""
    if isinstance(rows, np.ndarray):
        return np.nextafter(rows, np.float32(np.inf))
    import mlx.core as mx

    return mx.array(np.nextafter(np.array(rows.astype(mx.float32)), np.float32(np.inf))).astype(rows.dtype)


@contextlib.contextmanager
def drift_after_load() -> Iterator[None]:
    """From the end of the load check on, launches of more than one row drift."""
    begin = MlxModel.__init__

    def planted(self: MlxModel[Any], forward: Forward[Any], *rest: Any, **named: Any) -> None:
        begin(self, forward, *rest, **named)
        _plant(forward, lambda parts: sum(len(part.tokens) for part in parts) > 1)

    with mock.patch.object(MlxModel, "__init__", planted):
        yield


@contextlib.contextmanager
def drift_when(drifts: Callable[[Parts], bool]) -> Iterator[None]:
    """From the beginning on, launches that `drifts` picks drift."""
    begin = Forward.__init__

    def planted(self: Forward[Any], decoder: Any, head: Any = None) -> None:
        begin(self, decoder, head)
        _plant(self, drifts)

    with mock.patch.object(Forward, "__init__", planted):
        yield


def drift_when_wide(rows: int = WIDE) -> contextlib.AbstractContextManager[None]:
    """Windows of more than `rows` rows drift."""
    return drift_when(lambda parts: max(len(part.tokens) for part in parts) > rows)


def drift_when_branched(rows: int = 0) -> contextlib.AbstractContextManager[None]:
    """Trees of more than `rows` rows drift."""
    return drift_when(lambda parts: any(not p.layout.is_chain and len(p.tokens) > rows for p in parts))


def drift_when_shared(streams: int = 1) -> contextlib.AbstractContextManager[None]:
    """Launches of more than `streams` streams drift."""
    return drift_when(lambda parts: len(parts) > streams)


def drift_when_far(position: int) -> contextlib.AbstractContextManager[None]:
    """Windows of several rows at or past `position` drift."""
    return drift_when(lambda parts: any(len(p.tokens) > 1 and p.layout.position >= position for p in parts))


@contextlib.contextmanager
def slices_drift(rows: int = 64) -> Iterator[None]:
    """Prompt passes of at most `rows` rows drift."""
    absorb = Forward.absorb

    def planted(self: Forward[Any], lane: Any, ids: Any, step: int = 0) -> None:
        block = self.decoder.sublayers[0]
        sound = block.op
        if 0 < step <= rows:
            block.op = lambda x, context, residual: one_ulp_up(sound(x, context, residual))
        try:
            absorb(self, lane, ids, step)
        finally:
            block.op = sound

    with mock.patch.object(Forward, "absorb", planted):
        yield


@contextlib.contextmanager
def checks_kept_in(folder: Path) -> Iterator[None]:
    """Load checks are read from and written to `folder`, so that a fault is never hidden by an earlier finding."""
    with mock.patch.object(loader, "CheckCache", lambda _: CheckCache(folder)):
        yield


def _plant(forward: Forward[Any], drifts: Callable[[Parts], bool]) -> None:
    """Make the first block of a decoder drift during launches that `drifts` picks."""
    block, launch = forward.decoder.sublayers[0], forward.launch
    sound = block.op

    def planted(parts: Parts, drawn: Sequence[int]) -> Any:
        if drifts(parts):
            block.op = lambda rows, context, residual: one_ulp_up(sound(rows, context, residual))
        try:
            return launch(parts, drawn)
        finally:
            block.op = sound

    forward.launch = planted  # type: ignore[method-assign]
