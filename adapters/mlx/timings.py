"""Times of launches and prompt slices, measured at load: what the depth policy and the row allocation begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.forward import Forward, LanePart, LaneState
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.adapters.mlx.row_check import Allowed, Wanted
from tensorfold.adapters.mlx.row_probes import RowProbes, chain_of
from tensorfold.application.ports.target_model import ModelCosts, ProposeSpec
from tensorfold.domain.sampling import Sampling, draw_rows

A = TypeVar("A")
_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
_TRIES = 3
_SLICE = 64


def measure(forward: Forward[A], wanted: Wanted, allowed: Allowed) -> ModelCosts:
    """Best of three launches to their draws at several row counts, and the time of one prompt row."""
    probes = RowProbes(forward, wanted.context)
    lane = probes.prompted(min(_SLICE, wanted.context // 2))
    most = min(wanted.batch_rows, allowed.chain * (wanted.streams if allowed.shares else 1))
    rows_ms = [
        (count, _best(_Launch(forward, lane, count, allowed.chain, probes))) for count in _COUNTS if count <= most
    ]
    ids = probes.prompt(min(_SLICE, wanted.context))
    prefill = _best(lambda: probes.absorbed(ids, 0)) / len(ids)
    return ModelCosts(_ascending(rows_ms), prefill, _head_ms(forward, ids))


def _head_ms(forward: Forward[A], ids: NDArray[np.int64]) -> tuple[float, ...]:
    """The time in which the draft head makes 1, 2, ... drafts; of a block one time for every depth."""
    head = forward.head
    if head is None:
        return ()
    lane = forward.open(len(ids) + head.limits.most + 1, drafts=True)
    forward.absorb(lane, ids, _SLICE)
    state = lane.head
    if state is None:
        return ()

    def drafted(depth: int) -> float:
        return _best(lambda: state.propose(ProposeSpec(0, int(ids[0]), depth, Sampling())))

    if head.limits.kind == "lattice":
        return (drafted(head.limits.most),) * head.limits.most
    times = [drafted(depth) for depth in range(1, head.limits.most + 1)]
    return tuple(float(time) for time in np.maximum.accumulate(times))


class _Launch(Generic[A]):
    """A greedy launch of `rows` rows over as many copies of a lane as windows of `width` rows need."""

    def __init__(self, forward: Forward[A], lane: LaneState[A], rows: int, width: int, probes: RowProbes[A]) -> None:
        self._forward, self._rows = forward, rows
        self._parts = []
        for at in range(0, rows, width):
            window = chain_of(probes.scattered(min(width, rows - at), salt=at))
            self._parts.append(LanePart(lane.fork(), window.tokens, lay_out(window, lane.length)))

    def __call__(self) -> None:
        """Run it to its draws, and forget it."""
        logits = self._forward.decoder.host(self._forward.launch(self._parts, range(self._rows)))
        draw_rows(logits, range(self._rows), [Sampling()] * self._rows)
        for part in self._parts:
            part.lane.discard()


def _best(call: Callable[[], object]) -> float:
    """Milliseconds of the fastest of three calls."""
    times = []
    for _ in range(_TRIES):
        began = perf_counter()
        call()
        times.append(1000.0 * (perf_counter() - began))
    return float(np.min(times))


def _ascending(rows_ms: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """More rows never count as cheaper than fewer: what looks so is the noise of one measurement."""
    most, curve = 0.0, []
    for rows, ms in rows_ms:
        most = max(most, ms)
        curve.append((rows, most))
    return tuple(curve)
