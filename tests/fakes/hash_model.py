"""A target model whose reply is a hash of everything absorbed so far: one wrong row, position or rollback changes it.

Lanes, provisional rows, trees, masks and forced rows follow the port to the letter, and every misuse of the port raises
at the call that commits it. Draws come from the real sampler rule. Knows no engine, stream or request; one row's draw
never depends on the rows beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import (
    CapacityError,
    Chain,
    Draws,
    Lane,
    LaneImage,
    LaneWindow,
    Lattice,
    ModelCosts,
    ModelIdentity,
    ModelLimits,
    Path,
    ProposeSpec,
    Resume,
    RoundBatch,
    Span,
    Ticket,
)
from tensorfold.domain.sampling import RULE, draw_rows
from tests.fakes.hash_head import AnyHead
from tests.fakes.hash_lanes import HashLane, KeepRecord, LaneTrail, image_of, lane_from
from tests.fakes.hash_launch import DrawnRows, HashLaunch, PlannedWindow, plan_window, ticket_ids
from tests.fakes.hash_law import HashLaw, absorb_all
from tests.fakes.misuse import MisuseError

Call = TypeVar("Call", bound=Callable[..., Any])
DEFAULT_COSTS = ModelCosts(rows_ms=((1, 1.0), (2, 1.05), (4, 1.1), (8, 1.2), (16, 1.4), (64, 2.4)), prefill_row_ms=0.05)


def _noting(call: Call) -> Call:
    """Keeps what a misused call said in the model's `misuses`: an engine that recovers must not hide it from a test."""

    @wraps(call)
    def noted(self: HashModel, *arguments: Any, **named: Any) -> Any:
        try:
            return call(self, *arguments, **named)
        except (MisuseError, KeyError) as error:
            self.misuses.append(f"{call.__name__}: {error}")
            raise

    return cast(Call, noted)


class HashModel:
    """A `TargetModel` over a `HashLaw`.

    `stop_ids` are only kept for tests to read. `context` bounds a lane's capacity, `max_lanes` the lanes open at once.
    `head` proposes chains or a lattice. With `audit` every keep is recorded and `trail(lane)` tells what a lane
    absorbed, closed lanes included. With `one_thread` the first call that touches a lane binds the model to its thread.
    `host_seconds` is the time spent inside this model's own calls; `misuses` says what was wrong with each call that
    broke the port's rules, for tests of engines that recover from any error.
    """

    def __init__(
        self,
        law: HashLaw | None = None,
        *,
        stop_ids: Sequence[int] | None = None,
        chain_width: int = 16,
        tree_width: int = 16,
        batch_rows: int = 64,
        max_streams: int = 32,
        max_lanes: int = 64,
        context: int = 8192,
        shares_rounds: bool = True,
        resume: Resume = "chunk",
        prefill_slice: int = 1,
        draft_context: int = 0,
        costs: ModelCosts = DEFAULT_COSTS,
        head: AnyHead | None = None,
        audit: bool = False,
        one_thread: bool = True,
    ) -> None:
        self.law = law or HashLaw()
        self.stop_ids = frozenset((self.law.vocabulary - 1,) if stop_ids is None else stop_ids)
        self.head = head
        self.audit = audit
        self.host_seconds = 0.0
        self.misuses: list[str] = []
        self.launches = 0
        self.rows = 0
        self._limits = ModelLimits(
            self.law.vocabulary, context, chain_width, tree_width, max_streams, batch_rows, shares_rounds, resume,
            prefill_slice, RULE, draft_context, head=None if head is None else head.limits,
        )  # fmt: skip
        self._costs = costs
        self._max_lanes = max_lanes
        self._one_thread = one_thread
        self._thread: int | None = None
        self._next_lane = 0
        self._lanes: dict[Lane, HashLane] = {}
        self._prefills: dict[int, Lane] = {}
        self._launched: dict[int, HashLaunch] = {}
        self._orphans: set[int] = set()
        self._trails: dict[Lane, LaneTrail] = {}
        self._closed = False

    @property
    def identity(self) -> ModelIdentity:
        """Names the law: two models of equal law give equal replies."""
        law = self.law
        weights = f"{law.salt:x}/{law.vocabulary}/{law.spread}/{law.mantissa_bits}/{law.tie_share}/{law.habit_share}"
        return ModelIdentity("hash", weights, "numpy", "host", type(self).__name__, RULE)

    @property
    def limits(self) -> ModelLimits:
        """As constructed."""
        return self._limits

    @property
    def costs(self) -> ModelCosts:
        """As constructed; nothing is measured."""
        return self._costs

    # Lanes

    def open(self, capacity: int) -> Lane:
        """A fresh lane."""
        self._enter()
        return self._add(HashLane(self.law.start, capacity), LaneTrail())

    @_noting
    def close(self, lane: Lane) -> None:
        """Free a lane, and its rows of a launch not yet kept."""
        self._enter()
        del self._lanes[lane]
        self._prefills = {t: owner for t, owner in self._prefills.items() if owner != lane}
        for ticket, launch in list(self._launched.items()):
            if all(w.lane not in self._lanes for w in launch.windows):
                del self._launched[ticket]
                self._orphans.add(ticket)

    @_noting
    def fork(self, lane: Lane) -> Lane:
        """A second lane with the same committed state and capacity."""
        self._enter()
        source = self._settled(lane, "fork")
        trail = self._trails[lane].copied() if self.audit else LaneTrail()
        return self._add(HashLane(source.state, source.capacity, source.length), trail)

    @_noting
    def resume(self, lane: Lane, capacity: int) -> Lane:
        """A second lane with the same committed state and a capacity of its own."""
        self._enter()
        source = self._settled(lane, "resume")
        trail = self._trails[lane].copied() if self.audit else LaneTrail()
        return self._add(HashLane(source.state, capacity, source.length), trail)

    def lanes(self) -> tuple[Lane, ...]:
        """Every open lane."""
        return tuple(self._lanes)

    def _add(self, lane: HashLane, trail: LaneTrail) -> Lane:
        if not 0 < lane.capacity <= self._limits.context:
            raise CapacityError(f"A lane of {lane.capacity} tokens was asked for; it holds {self._limits.context}.")
        if len(self._lanes) >= self._max_lanes:
            raise CapacityError(f"All {self._max_lanes} lanes are in use.")
        number = self._number()
        self._lanes[number] = lane
        if self.audit:
            self._trails[number] = trail
        return number

    def _number(self) -> Lane:
        self._next_lane += 1
        return self._next_lane

    # Work

    @_noting
    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """Absorb a span of the prompt at once."""
        began = perf_counter()
        self._enter()
        target = self._settled(lane, "prefill")
        if not 0 <= span.start < span.stop <= len(ids):
            raise MisuseError(f"span {span.start}..{span.stop} of {len(ids)} ids")
        if span.start != target.length:
            raise MisuseError(f"lane {lane} absorbed {target.length} tokens, the span begins at {span.start}")
        if span.stop > target.capacity:
            raise MisuseError(f"lane {lane} can absorb {target.capacity} tokens, the span ends at {span.stop}")
        part: list[int] = ids[span.start : span.stop].tolist()
        if min(part) < 0 or max(part) >= self.law.vocabulary:
            raise MisuseError(f"the prompt holds an id outside 0..{self.law.vocabulary - 1}")
        target.state = absorb_all(target.state, part)
        target.length = span.stop
        if self.audit:
            self._trails[lane].absorbed.extend(part)
        ticket = Ticket(next(ticket_ids), len(part))
        self._prefills[ticket.id] = lane
        self.host_seconds += perf_counter() - began
        return ticket

    @_noting
    def launch(self, batch: RoundBatch) -> Ticket:
        """Check and hash every row; draws are made when they are collected."""
        began = perf_counter()
        self._enter()
        self._check_batch(batch)
        windows: list[PlannedWindow] = []
        rows = 0
        for asked in batch.windows:
            windows.append(plan_window(asked, self._lane_for(asked), self._limits, rows))
            rows += len(asked.window.tokens)
        if rows > self._limits.batch_rows:
            raise MisuseError(f"a launch of {rows} rows; the limit is {self._limits.batch_rows}")
        launch = HashLaunch(Ticket(next(ticket_ids), rows), tuple(windows))
        for asked in batch.windows:
            lane = self._lanes[asked.lane]
            if lane.kept is not None:
                self._launched.pop(lane.kept, None)
                lane.kept = None
            lane.provisional = launch.ticket.id
        self._launched[launch.ticket.id] = launch
        self.launches += 1
        self.rows += rows
        self.host_seconds += perf_counter() - began
        return launch.ticket

    @_noting
    def collect(self, ticket: Ticket) -> Draws:
        """The draws of a launch, or none for a prefill's ticket."""
        began = perf_counter()
        self._enter()
        if self._prefills.pop(ticket.id, None) is not None:
            return Draws(())
        launch = self._launch_of(ticket)
        if launch.draws is not None:
            raise MisuseError(f"ticket {ticket.id} was already collected")
        launch.draws = self._draw(launch)
        self.host_seconds += perf_counter() - began
        return Draws(launch.draws, prints=launch.prints)

    @_noting
    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        """Commit the rows of each path."""
        began = perf_counter()
        self._enter()
        launch = self._launch_of(ticket)
        if launch.paths is not None:
            raise MisuseError(f"ticket {ticket.id} was already kept")
        if launch.draws is None:
            raise MisuseError(f"ticket {ticket.id} was kept before it was collected")
        if len(paths) != len(launch.windows):
            raise MisuseError(f"{len(paths)} paths for {len(launch.windows)} windows")
        for window, path in zip(launch.windows, paths, strict=True):
            window.check_path(path)
            if path and window.lane not in self._lanes:
                raise MisuseError(f"lane {window.lane} is closed, its rows cannot stay")
        for window, path in zip(launch.windows, paths, strict=True):
            self._commit(window, path)
        launch.paths = tuple(tuple(path) for path in paths)
        self._retire(launch)
        self.host_seconds += perf_counter() - began

    @_noting
    def discard(self, ticket: Ticket) -> None:
        """Forget a launch; harmless for one that its lanes' closing already forgot."""
        self._enter()
        launch = self._launched.pop(ticket.id, None)
        if launch is None and ticket.id in self._orphans:
            self._orphans.remove(ticket.id)
            return
        if launch is None or launch.paths is not None:
            raise MisuseError(f"ticket {ticket.id} has nothing to discard: unknown, kept or discarded before")
        for window in launch.windows:
            lane = self._lanes.get(window.lane)
            if lane is not None and lane.provisional == ticket.id:
                lane.provisional = None

    @_noting
    def propose(self, specs: Sequence[ProposeSpec]) -> Sequence[Chain | Lattice | None]:
        """What the head drafts from each lane's committed state; None for each lane without a head or a past."""
        began = perf_counter()
        self._enter()
        if len({spec.lane for spec in specs}) != len(specs):
            raise MisuseError("a lane stands twice in one proposal")
        offers = [self._offer(spec) for spec in specs]
        self.host_seconds += perf_counter() - began
        return offers

    def _offer(self, spec: ProposeSpec) -> Chain | Lattice | None:
        lane = self._settled(spec.lane, "propose")
        if not 0 <= spec.pending < self.law.vocabulary:
            raise MisuseError(f"the pending id {spec.pending} is outside 0..{self.law.vocabulary - 1}")
        if spec.depth < 1:
            raise MisuseError(f"a head was asked for {spec.depth} drafts")
        if self.head is None or lane.length == 0:
            return None
        return self.head.propose(self.law, lane.state, spec.pending, lane.length, spec.depth, spec.sampling)

    # Images

    @_noting
    def export(self, lane: Lane) -> LaneImage:
        """The committed state."""
        self._enter()
        absorbed = self._trails[lane].absorbed if self.audit else None
        return image_of(self._settled(lane, "export"), absorbed, str(self.identity))

    def restore(self, image: LaneImage, capacity: int) -> Lane:
        """A lane from an image of an equal law."""
        self._enter()
        state, absorbed = lane_from(image, str(self.identity))
        if image.length > capacity:
            raise CapacityError(f"An image of {image.length} tokens does not fit a lane of {capacity}.")
        return self._add(HashLane(state, capacity, image.length), LaneTrail(absorbed))

    def shutdown(self) -> None:
        """Forget every lane; every later call raises."""
        self._enter()
        self._lanes.clear()
        self._launched.clear()
        self._prefills.clear()
        self._closed = True

    # What tests read

    def state(self, lane: Lane) -> int:
        """The committed state of an open lane; equals `law.state_of(ids)` of what it absorbed."""
        return self._lanes[lane].state

    def length(self, lane: Lane) -> int:
        """Tokens an open lane absorbed."""
        return self._lanes[lane].length

    def trail(self, lane: Lane) -> LaneTrail:
        """What a lane absorbed and each keep of it; needs `audit`."""
        return self._trails[lane]

    def trails(self) -> dict[Lane, LaneTrail]:
        """Every lane's trail, closed lanes included; needs `audit`."""
        return dict(self._trails)

    def unsettled(self) -> tuple[int, ...]:
        """Ids of launches neither kept nor discarded: empty when the engine is idle."""
        return tuple(id for id, launch in self._launched.items() if launch.paths is None)

    # Inside

    def _enter(self) -> None:
        if self._closed:
            raise MisuseError("the model was shut down")
        if self._one_thread:
            me = threading.get_ident()
            if self._thread is None:
                self._thread = me
            elif self._thread != me:
                raise MisuseError("the model was called from a second thread")

    def _settled(self, lane: Lane, call: str) -> HashLane:
        found = self._lanes.get(lane)
        if found is None:
            raise MisuseError(f"{call} on lane {lane}, which is not open")
        if found.provisional is not None:
            raise MisuseError(f"{call} on lane {lane}, whose launch was neither kept nor discarded")
        return found

    def _lane_for(self, asked: LaneWindow) -> HashLane:
        lane = self._settled(asked.lane, "launch")
        if asked.position != lane.length:
            raise MisuseError(f"lane {asked.lane} absorbed {lane.length} tokens, row 0 claims {asked.position}")
        return lane

    def _check_batch(self, batch: RoundBatch) -> None:
        windows = batch.windows
        if not windows:
            raise MisuseError("a launch of no windows")
        if len(windows) > 1:
            if not self._limits.shares_rounds:
                raise MisuseError(f"{len(windows)} lanes share a launch of a model that does not share rounds")
            if len(windows) > self._limits.max_streams:
                raise MisuseError(f"{len(windows)} lanes in one launch; the limit is {self._limits.max_streams}")
            if len({w.lane for w in windows}) != len(windows):
                raise MisuseError("a lane stands twice in one launch")

    def _launch_of(self, ticket: Ticket) -> HashLaunch:
        launch = self._launched.get(ticket.id)
        if launch is None or launch.ticket != ticket:
            raise MisuseError(f"ticket {ticket.id} is of no live launch: foreign, kept, discarded, or its lanes closed")
        return launch

    def _draw(self, launch: HashLaunch) -> tuple[Sequence[int], ...]:
        rows = self._gathered(launch)
        logits = self._logits(rows)
        launch.prints = rows.prints(logits)
        for row, mask in rows.masks:
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: self.law.vocabulary]
            logits[row, bits == 0] = -np.inf
        return rows.split(draw_rows(logits, rows.draw_positions, rows.samplings))

    def _gathered(self, launch: HashLaunch) -> DrawnRows:
        return launch.rows()

    def _logits(self, rows: DrawnRows) -> NDArray[np.float32]:
        return self.law.logits(rows.states, rows.tokens)

    def _commit(self, window: PlannedWindow, path: Path) -> None:
        lane = self._lanes.get(window.lane)
        if lane is None:
            return
        lane.provisional = None
        if path:
            lane.state = window.states[path[-1]]
            lane.length += len(path)
        if self.audit:
            kept = tuple(window.tokens[row] for row in path)
            trail = self._trails[window.lane]
            trail.absorbed.extend(kept)
            trail.keeps.append(KeepRecord(lane.length, lane.state, kept))

    def _retire(self, launch: HashLaunch) -> None:
        if self.head is None:
            del self._launched[launch.ticket.id]
            return
        for window in launch.windows:
            if window.lane in self._lanes:
                self._lanes[window.lane].kept = launch.ticket.id
