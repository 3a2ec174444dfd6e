"""A target model that fails, or hangs, at a chosen call: for chosen lanes, chosen prompts, or the nth call.

Around its faults it keeps the port's promise: after a launch or collect that raised, every lane stands where it stood.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import (
    Chain,
    Draws,
    Lane,
    LaneImage,
    Lattice,
    Path,
    PromptEndModel,
    ProposeSpec,
    RoundBatch,
    Span,
    TargetModel,
    Ticket,
)
from tests.fakes.wrapped_model import WrappedModel

Site = Literal[
    "open",
    "close",
    "fork",
    "prefill",
    "collect_prefill",
    "launch",
    "collect",
    "keep",
    "discard",
    "propose",
    "export",
    "restore",
]
SITES: tuple[Site, ...] = get_args(Site)


class PlantedError(Exception):
    """What a planted fault raises unless told otherwise."""


@dataclass(eq=False)
class Fault:
    """One planted fault at `site`.

    It strikes calls that touch one of `lanes` (None: any) or a lane whose prompt satisfies `prompt` (None: any), the
    `nth` such call alone (1 is the first; None: each), at most `times` times. `after` lets the inner call happen first.
    `error` makes the exception; None raises nothing. With `block` the call first sets `entered` and waits for `block`.
    """

    site: Site
    nth: int | None = None
    lanes: Collection[Lane] | None = None
    prompt: Callable[[tuple[int, ...]], bool] | None = None
    times: int | None = None
    after: bool = False
    error: Callable[[], Exception] | None = lambda: PlantedError("planted")
    block: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)
    calls: int = 0
    struck: int = 0

    def strikes(self, site: Site, lanes: Sequence[Lane], prompts: Sequence[tuple[int, ...]]) -> bool:
        """Whether this call is hit; counts the calls that match."""
        if site != self.site or (self.times is not None and self.struck >= self.times):
            return False
        if self.lanes is not None and not any(lane in self.lanes for lane in lanes):
            return False
        if self.prompt is not None and not any(self.prompt(p) for p in prompts):
            return False
        self.calls += 1
        return self.nth is None or self.calls == self.nth

    def happen(self) -> None:
        """Hang and raise as planted."""
        self.struck += 1
        if self.block is not None:
            self.entered.set()
            self.block.wait()
        if self.error is not None:
            raise self.error()


class FaultyModel(WrappedModel):
    """`inner` with planted faults; add to `faults` at any time."""

    def __init__(self, inner: TargetModel, faults: Sequence[Fault] = ()) -> None:
        super().__init__(inner)
        self.faults = list(faults)
        self._prompts: dict[Lane, tuple[int, ...]] = {}
        self._tickets: dict[int, tuple[Lane, ...]] = {}
        self._launches: set[int] = set()
        self._undone: set[int] = set()

    def open(self, capacity: int) -> Lane:
        """As the port says, or as planted."""
        self._strike("open", ())
        lane = self.inner.open(capacity)
        self._strike_after("open", (lane,), lambda: self.inner.close(lane))
        return lane

    def close(self, lane: Lane) -> None:
        """As the port says, or as planted; before the inner call the lane stays open."""
        self._strike("close", (lane,))
        self.inner.close(lane)
        self._strike_after("close", (lane,))
        self._prompts.pop(lane, None)

    def fork(self, lane: Lane) -> Lane:
        """As the port says, or as planted."""
        self._strike("fork", (lane,))
        copy = self.inner.fork(lane)
        self._strike_after("fork", (lane,), lambda: self.inner.close(copy))
        if lane in self._prompts:
            self._prompts[copy] = self._prompts[lane]
        return copy

    def resume(self, lane: Lane, capacity: int) -> Lane:
        """As the port says, or as planted at a fork."""
        self._strike("fork", (lane,))
        copy = cast(PromptEndModel, self.inner).resume(lane, capacity)
        self._strike_after("fork", (lane,), lambda: self.inner.close(copy))
        if lane in self._prompts:
            self._prompts[copy] = self._prompts[lane]
        return copy

    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """As the port says, or as planted; the whole of `ids` is the lane's prompt."""
        self._prompts[lane] = tuple(ids.tolist())
        self._strike("prefill", (lane,))
        ticket = self.inner.prefill(lane, ids, span)
        self._strike_after("prefill", (lane,))
        self._tickets[ticket.id] = (lane,)
        return ticket

    def launch(self, batch: RoundBatch) -> Ticket:
        """As the port says, or as planted; a launch undone by a fault leaves no rows behind."""
        lanes = tuple(w.lane for w in batch.windows)
        for window in batch.windows:
            if window.position == 0:
                self._prompts.setdefault(window.lane, window.window.tokens[:1])
        self._strike("launch", lanes)
        ticket = self.inner.launch(batch)
        self._strike_after("launch", lanes, lambda: self.inner.discard(ticket))
        self._tickets[ticket.id] = lanes
        self._launches.add(ticket.id)
        return ticket

    def collect(self, ticket: Ticket) -> Draws:
        """As the port says, or as planted: a launch is then undone, and discarding it once more is harmless."""
        lanes = self._tickets.get(ticket.id, ())
        if ticket.id not in self._launches:
            self._strike("collect_prefill", lanes)
            draws = self.inner.collect(ticket)
            self._strike_after("collect_prefill", lanes)
            return draws
        self._strike("collect", lanes, lambda: self._undo(ticket))
        draws = self.inner.collect(ticket)
        self._strike_after("collect", lanes, lambda: self._undo(ticket))
        return draws

    def _undo(self, ticket: Ticket) -> None:
        self.inner.discard(ticket)
        self._undone.add(ticket.id)

    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        """As the port says, or as planted."""
        lanes = self._tickets.get(ticket.id, ())
        self._strike("keep", lanes)
        self.inner.keep(ticket, paths)
        self._strike_after("keep", lanes)

    def discard(self, ticket: Ticket) -> None:
        """As the port says, or as planted."""
        lanes = self._tickets.get(ticket.id, ())
        self._strike("discard", lanes)
        if ticket.id in self._undone:
            self._undone.remove(ticket.id)
        else:
            self.inner.discard(ticket)
        self._strike_after("discard", lanes)

    def propose(self, specs: Sequence[ProposeSpec]) -> Sequence[Chain | Lattice | None]:
        """As the port says, or as planted."""
        lanes = tuple(spec.lane for spec in specs)
        self._strike("propose", lanes)
        offers = self.inner.propose(specs)
        self._strike_after("propose", lanes)
        return offers

    def export(self, lane: Lane) -> LaneImage:
        """As the port says, or as planted."""
        self._strike("export", (lane,))
        image = self.inner.export(lane)
        self._strike_after("export", (lane,))
        return image

    def restore(self, image: LaneImage, capacity: int) -> Lane:
        """As the port says, or as planted."""
        self._strike("restore", ())
        lane = self.inner.restore(image, capacity)
        self._strike_after("restore", (lane,), lambda: self.inner.close(lane))
        return lane

    def _strike(self, site: Site, lanes: Sequence[Lane], undo: Callable[[], None] | None = None) -> None:
        self._happen(site, lanes, undo, after=False)

    def _strike_after(self, site: Site, lanes: Sequence[Lane], undo: Callable[[], None] | None = None) -> None:
        self._happen(site, lanes, undo, after=True)

    def _happen(self, site: Site, lanes: Sequence[Lane], undo: Callable[[], None] | None, *, after: bool) -> None:
        prompts = [self._prompts[lane] for lane in lanes if lane in self._prompts]
        for fault in self.faults:
            if fault.after == after and fault.strikes(site, lanes, prompts):
                if undo is not None and fault.error is not None:
                    undo()
                fault.happen()
