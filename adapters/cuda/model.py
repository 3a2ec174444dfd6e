"""The TargetModel of the CUDA backend: lanes by number, launches by ticket, everything checked before it is run.

All calls come from the thread that loaded it. A launch never touches committed state but to commit what was kept
before; `keep` is bookkeeping on the host, and what was kept in part is replayed by the next launch. A fork holds no
lane slot until it takes part in a launch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.drafts_ahead import DraftsAhead
from tensorfold.adapters.cuda.engine_parts import EngineParts
from tensorfold.adapters.cuda.heads.head import KeptRows
from tensorfold.adapters.cuda.lane_book import LaneEntry, NoRoomError
from tensorfold.adapters.cuda.lookahead import Ahead, Habits
from tensorfold.adapters.cuda.memory import allocating
from tensorfold.adapters.cuda.passes import padded
from tensorfold.adapters.cuda.plans import kept, plan_window
from tensorfold.adapters.cuda.tickets import Launched, LaunchedWindow, drawn_after
from tensorfold.application.asked import check_asked, check_ids
from tensorfold.application.ports.target_model import (
    CapacityError,
    Chain,
    Draws,
    Lane,
    LaneImage,
    Lattice,
    ModelCosts,
    ModelIdentity,
    ModelLimits,
    Path,
    ProposeSpec,
    RoundBatch,
    Span,
    Ticket,
)
from tensorfold.domain.windows import chain


class CudaModel:
    """One loaded model; `parts` are its decoder, passes and pools, `limits` and `costs` what the load check found.

    One that `looks_ahead` queues the next row of streams that go on a row at a time.
    """

    def __init__(
        self,
        parts: EngineParts,
        identity: ModelIdentity,
        limits: ModelLimits,
        costs: ModelCosts,
        *,
        looks_ahead: bool = True,
    ) -> None:
        self.parts = parts
        self._looks_ahead = looks_ahead
        self._identity, self._limits, self._costs = identity, limits, costs
        self._numbers = itertools.count(1)
        self._lanes: dict[Lane, LaneEntry] = {}
        self._heads: dict[Lane, Any] = {}
        self._busy: dict[Lane, int] = {}
        self._launches: dict[int, Launched] = {}
        self._prefills: set[int] = set()
        self._habits = Habits()
        self._ahead: Ahead | None = None
        self.drafts_ahead = DraftsAhead(parts.head, parts.paths())

    @property
    def identity(self) -> ModelIdentity:
        """The engine that replies are exact against."""
        return self._identity

    @property
    def limits(self) -> ModelLimits:
        """Capacities and what the load check allows."""
        return self._limits

    @property
    def costs(self) -> ModelCosts:
        """Times measured at load."""
        return self._costs

    # -- lanes ---------------------------------------------------------------------------------------------------

    @allocating
    def open(self, capacity: int) -> Lane:
        """A fresh lane. Raises CapacityError for more tokens than the context, or when slots or pages are short."""
        self._require_window(capacity)
        try:
            entry = self.parts.open(capacity)
        except NoRoomError as short:
            raise self._full(short) from None
        head = self.parts.head
        return self._add(entry, None if head is None else lambda: head.open(entry))

    def close(self, lane: Lane) -> None:
        """Free a lane; rows of a launch not yet kept go with it. Raises KeyError for an unknown lane."""
        self.parts.book.close(self._lanes.pop(lane))
        self._heads.pop(lane, None)
        self._busy.pop(lane, None)
        self.drafts_ahead.close(lane)

    @allocating
    def fork(self, lane: Lane) -> Lane:
        """A second lane with the same committed state, which holds no slot until it takes part in a launch."""
        entry = self._settled(lane)
        try:
            other = self.parts.keep(entry)
        except NoRoomError as short:
            raise self._full(short) from None
        return self._add(other, self._forked(lane, other))

    @allocating
    def resume(self, lane: Lane, capacity: int) -> Lane:
        """A lane of `capacity` tokens behind what another holds, which stays as it is."""
        entry = self._settled(lane)
        self._require_window(capacity)
        if entry.length > capacity:
            raise CapacityError(f"A state of {entry.length} tokens does not fit a lane of {capacity}.")
        try:
            woken = self.parts.resume(entry, capacity)
        except NoRoomError as short:
            raise self._full(short) from None
        return self._add(woken, self._forked(lane, woken))

    def lanes(self) -> tuple[Lane, ...]:
        """Every open lane."""
        return tuple(self._lanes)

    def _add(self, entry: LaneEntry, head: Callable[[], Any] | None) -> Lane:
        lane = next(self._numbers)
        self._lanes[lane] = entry
        self._give_head(lane, head)
        return lane

    def _forked(self, lane: Lane, entry: LaneEntry) -> Callable[[], Any] | None:
        head = self._heads.get(lane)
        return None if head is None else lambda: head.fork(entry)

    def _give_head(self, lane: Lane, make: Callable[[], Any] | None) -> None:
        """A lane's head; one that cannot be made costs the lane's drafts and nothing else."""
        self._heads.pop(lane, None)
        if make is not None:
            with suppress(Exception):
                self._heads[lane] = make()

    def _require_window(self, capacity: int) -> None:
        if not 0 < capacity <= self._limits.context:
            raise CapacityError(
                f"A lane of {capacity} tokens was asked for; the window holds {self._limits.context}: "
                "`--context` sets it at startup."
            )

    def _full(self, short: NoRoomError) -> CapacityError:
        return CapacityError(f"No lane can be had now: {short}; `--parallel` sets how many streams may run.")

    def _settled(self, lane: Lane) -> LaneEntry:
        entry = self._lanes[lane]
        if lane in self._busy:
            raise ValueError(f"lane {lane} has a launch that was neither kept nor discarded")
        return entry

    def _awake(self, lane: Lane) -> LaneEntry:
        """The entry of a lane that takes part in launches; a fork gets its slot now. Raises CapacityError."""
        entry = self._settled(lane)
        if entry.slot >= 0:
            return entry
        try:
            woken = self.parts.resume(entry, entry.capacity)
        except NoRoomError as short:
            raise self._full(short) from None
        self._give_head(lane, self._forked(lane, woken))
        self.parts.book.close(entry)
        self._lanes[lane] = woken
        return woken

    # -- prompts -------------------------------------------------------------------------------------------------

    @allocating
    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """Absorb a span of the prompt."""
        entry = self._settled(lane)
        if not entry.length == span.start < span.stop <= min(len(ids), entry.capacity):
            raise ValueError(
                f"span {span.start}..{span.stop} of {len(ids)} ids on a lane of {entry.capacity} "
                f"that absorbed {entry.length}"
            )
        part = np.asarray(ids[span.start : span.stop], np.int64)
        check_ids(int(part.min()), int(part.max()), self._limits.vocabulary)
        taps = self.parts.prompt(self._awake(lane), part)
        self._absorb(lane, tuple(part.tolist()), taps)
        ticket = Ticket(next(self._numbers), len(part))
        self._prefills.add(ticket.id)
        return ticket

    def _absorb(self, lane: Lane, tokens: tuple[int, ...], taps: Mapping[int, Any]) -> None:
        head = self._heads.get(lane)
        if head is None:
            return
        self.drafts_ahead.forget(lane)
        try:
            head.absorb(tokens, taps)
        except Exception:
            # What a head cannot take in costs its drafts on this lane and nothing else.
            del self._heads[lane]

    # -- rounds --------------------------------------------------------------------------------------------------

    @allocating
    def launch(self, batch: RoundBatch) -> Ticket:
        """Queue the rows of a round. Raises ValueError, before any row is run, for a batch the limits do not allow."""
        if not batch.windows or batch.rows > self._limits.batch_rows:
            raise ValueError(f"a launch of {batch.rows} rows; 1 to {self._limits.batch_rows} may share one")
        if len({asked.lane for asked in batch.windows}) != len(batch.windows):
            raise ValueError("a lane stands twice in one launch")
        if len(batch.windows) > 1 and not self._limits.shares_rounds:
            raise ValueError(f"a launch of {len(batch.windows)} lanes; rows do not keep their bits in company here")
        for asked in batch.windows:
            entry = self._settled(asked.lane)
            check_asked(asked, entry.length, self._limits)
            if entry.length + max(asked.window.depths()) >= entry.capacity:
                raise ValueError(f"lane {asked.lane} can absorb {entry.capacity} tokens, a row stands past them")
        alone = self._is_alone()
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.is_asked(batch):
            launched = ahead.taken(batch)
        else:
            launched = self._run(self._planned(batch, alone=alone), batch.rows, alone=alone)
        ticket = Ticket(next(self._numbers), batch.rows)
        self._launches[ticket.id] = launched
        self._busy.update((asked.lane, ticket.id) for asked in batch.windows)
        goes_on, expected = self._habits.note(batch), self.drafts_ahead.launched(launched.windows)
        if alone and self._looks_ahead:
            queued = self.drafts_ahead.queue(launched, expected, self._heads)
            if goes_on and not queued:
                # As with drafts: what only hides time may not end a round.
                with suppress(Exception):
                    self._look_ahead(launched, batch.rows)
        return ticket

    def _is_alone(self) -> bool:
        """Whether nothing of an earlier launch is to be read any more."""
        waiting = set(self._busy.values())
        return all(launched.collected and number not in waiting for number, launched in self._launches.items())

    def _planned(self, batch: RoundBatch, *, alone: bool) -> tuple[LaunchedWindow, ...]:
        """The integers of a batch that was checked; its forks get their slots."""
        entries = [self._awake(asked.lane) for asked in batch.windows]
        if not (alone and self.parts.graphs):
            # What is queued layer by layer may stop between two, and what was committed cannot be undone.
            for entry in entries:
                self.parts.settle(entry)
        windows, start = [], 0
        for asked, entry in zip(batch.windows, entries, strict=True):
            planned = plan_window(entry, asked.window)
            windows.append(LaunchedWindow(asked.lane, entry, asked, planned, start))
            start += len(asked.window)
        return tuple(windows)

    def _run(self, windows: tuple[LaunchedWindow, ...], rows: int, *, alone: bool) -> Launched:
        draws = [draw for window in windows for draw in window.draws()] + [None] * (padded(rows) - rows)
        planned = [window.planned for window in windows]
        run = self.parts.passes(padded(rows))
        if alone:
            run.run(planned, draws, self.parts.book)
        else:
            # Another launch is not settled, and a graph's results hold only until its next replay.
            run.eager(planned, draws, self.parts.book)
        for window in windows:
            window.entry.replay = ()  # the launch commits it
        audited = any(window.asked.audit for window in windows)
        made = run.results
        return Launched(
            windows, dict(made.taps), made.tokens, *self.parts.to_host(made.tokens), made.logits if audited else None
        )

    def _look_ahead(self, launched: Launched, rows: int) -> None:
        """Queue the next row of every lane, if all of them can take one."""
        if any(w.entry.length + 1 >= w.entry.capacity for w in launched.windows):
            return
        planned = [plan_window(w.entry.ahead(w.planned.ring), chain(0)) for w in launched.windows]
        draws = [drawn_after(window) for window in launched.windows]
        run = self.parts.passes(padded(rows))
        if self._heads:
            # The head reads them when rows are kept, behind the run that is queued now.
            launched.taps = {layer: rows.clone() for layer, rows in launched.taps.items()}
        run.run(planned, [*draws, *[None] * (padded(rows) - rows)], self.parts.book, launched.drawn[:rows])
        windows = tuple(
            LaunchedWindow(w.lane, w.entry, w.asked, plan, w.start)
            for w, plan in zip(launched.windows, planned, strict=True)
        )
        made = run.results
        queued = Launched(windows, dict(made.taps), made.tokens, *self.parts.to_host(made.tokens))
        self._ahead = Ahead(launched, planned, queued)

    @allocating
    def collect(self, ticket: Ticket) -> Draws:
        """Wait for a launch's draws; none for a prefill's ticket. Raises ValueError for a ticket collected before."""
        if ticket.id in self._prefills:
            self._prefills.remove(ticket.id)
            self.parts.wait()
            return Draws(())
        launch = self._launches.get(ticket.id)
        if launch is None or launch.collected:
            raise ValueError(f"ticket {ticket.id} has nothing to collect")
        return launch.collect()

    @allocating
    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        """Commit exactly the rows of each path. Raises ValueError, changing nothing, for paths that do not fit."""
        launch = self._launches.get(ticket.id)
        if launch is None or not launch.collected or len(paths) != len(launch.windows):
            raise ValueError(f"ticket {ticket.id} cannot keep {len(paths)} paths: settled, not collected, or of others")
        for window, path in zip(launch.windows, paths, strict=True):
            window.check_path(path)
            if path and self._busy.get(window.lane) != ticket.id:
                raise ValueError(f"lane {window.lane} is closed, its rows cannot stay")
        del self._launches[ticket.id]
        moves: list[tuple[int, int, int]] = []
        for window, path in zip(launch.windows, paths, strict=True):
            if self._busy.get(window.lane) != ticket.id:
                continue
            del self._busy[window.lane]
            entry = window.entry
            moved = kept(entry, window.planned, path, chain=window.asked.window.is_chain)
            moves += [(entry.slot, source, target) for source, target in moved]
        if moves:
            self.parts.move(moves)
        self._take(launch, [pair for pair in zip(launch.windows, paths, strict=True) if pair[0].lane in self._heads])

    def _take(self, launch: Launched, kept: Sequence[tuple[LaunchedWindow, Path]]) -> None:
        """Give the head the rows that its lanes keep; what it cannot take in costs its drafts on these lanes."""
        given: list[KeptRows] = []
        lanes: list[Lane] = []
        for window, path in kept:
            if not self.drafts_ahead.takes(launch, window, path) and path:
                given.append(window.kept_rows(path, self._heads[window.lane]))
                lanes.append(window.lane)
        if not given:
            return
        try:
            self.parts.head.take(given, launch.taps)
        except Exception:
            for lane in lanes:
                del self._heads[lane]

    def discard(self, ticket: Ticket) -> None:
        """Forget a launch as if it had not been made. Raises ValueError for one that was kept or discarded."""
        launch = self._launches.pop(ticket.id, None)
        if launch is None:
            raise ValueError(f"ticket {ticket.id} has nothing to discard")
        for window in launch.windows:
            if self._busy.get(window.lane) == ticket.id:
                del self._busy[window.lane]

    @allocating
    def propose(self, specs: Sequence[ProposeSpec]) -> Sequence[Chain | Lattice | None]:
        """Drafts of the head for each lane; None where the lane has no head or nothing was absorbed yet."""
        head = self.parts.head
        if head is None:
            return [None] * len(specs)
        for spec in specs:
            self._settled(spec.lane)
            check_ids(spec.pending, spec.pending, self._limits.vocabulary)
            if not 0 < spec.depth <= head.limits.most:
                raise ValueError(f"{spec.depth} drafts asked of a head that makes 1 to {head.limits.most}")
        answers: list[Chain | Lattice | None] = []
        for spec in specs:
            self.drafts_ahead.asked(spec)
            answers.append(self.drafts_ahead.drafts(spec) if spec.lane in self._heads else None)
        rest = [at for at, spec in enumerate(specs) if answers[at] is None and spec.lane in self._heads]
        if rest:
            offers = head.propose([(self._heads[specs[at].lane], specs[at]) for at in rest])
            for at, offer in zip(rest, offers, strict=True):
                answers[at] = offer
        return answers

    # -- images --------------------------------------------------------------------------------------------------

    @allocating
    def export(self, lane: Lane) -> LaneImage:
        """A lane's committed state in host memory."""
        return self.parts.image(self._settled(lane), self._heads.get(lane), self._identity)

    @allocating
    def restore(self, image: LaneImage, capacity: int) -> Lane:
        """A lane with an exported state. Raises ValueError for another engine's image, CapacityError for no room."""
        self._require_window(capacity)
        self.parts.check_image(image, self._identity)
        if image.length > capacity:
            raise CapacityError(f"An image of {image.length} tokens does not fit a lane of {capacity}.")
        lane = self.open(capacity)
        try:
            if not self.parts.load_image(image, self._lanes[lane], self._heads.get(lane)):
                self._heads.pop(lane, None)
        except BaseException:
            self.close(lane)
            raise
        return lane

    def shutdown(self) -> None:
        """Free every lane, launch and pool."""
        self._lanes.clear()
        self._heads.clear()
        self._busy.clear()
        self._launches.clear()
        self._prefills.clear()
        self._ahead = None
        self.drafts_ahead.shutdown()
        self.parts.close()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
