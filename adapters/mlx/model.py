"""The TargetModel of the MLX backend: lanes by number, launches by ticket, everything checked before it is run.

All calls come from the thread that loaded it. Committed state changes only in `prefill` and `keep`; draws follow the
domain's one rule on float32 logits of the drawn rows alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.forward import Forward, LanePart, LaneState
from tensorfold.adapters.mlx.images import image_of, load_image
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.adapters.mlx.memory import allocating
from tensorfold.adapters.mlx.tickets import Launch, LaunchedWindow
from tensorfold.application.asked import check_asked, check_ids
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
    RoundBatch,
    Span,
    Ticket,
)

A = TypeVar("A")


class MlxModel(Generic[A]):
    """One loaded model. `limits` and `costs` are what the load check found."""

    def __init__(
        self,
        forward: Forward[A],
        identity: ModelIdentity,
        limits: ModelLimits,
        costs: ModelCosts,
        *,
        most_lanes: int = 64,
    ) -> None:
        self.forward = forward
        self._identity, self._limits, self._costs = identity, limits, costs
        self._most_lanes = most_lanes
        self._numbers = itertools.count(1)
        self._lanes: dict[Lane, LaneState[A]] = {}
        self._busy: dict[Lane, int] = {}
        self._launches: dict[int, Launch[A]] = {}
        self._prefills: set[int] = set()

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
        """A fresh lane. Raises CapacityError for more tokens than the context or more lanes than there are."""
        self._require_room(capacity)
        return self._add(self.forward.open(capacity, drafts=True))

    def close(self, lane: Lane) -> None:
        """Free a lane; rows of a launch not yet kept go with it. Raises KeyError for an unknown lane."""
        del self._lanes[lane]
        self._busy.pop(lane, None)

    @allocating
    def fork(self, lane: Lane) -> Lane:
        """A second lane with the same committed state."""
        state = self._settled(lane)
        self._require_room(state.capacity)
        return self._add(state.fork())

    def lanes(self) -> tuple[Lane, ...]:
        """Every open lane."""
        return tuple(self._lanes)

    def _add(self, state: LaneState[A]) -> Lane:
        lane = next(self._numbers)
        self._lanes[lane] = state
        return lane

    def _require_room(self, capacity: int) -> None:
        if not 0 < capacity <= self._limits.context:
            raise CapacityError(
                f"A lane of {capacity} tokens was asked for; the window holds {self._limits.context}: "
                "`--context` sets it at startup."
            )
        if len(self._lanes) >= self._most_lanes:
            raise CapacityError(f"All {self._most_lanes} lanes are in use; `--parallel` sets how many streams may run.")

    def _settled(self, lane: Lane) -> LaneState[A]:
        state = self._lanes[lane]
        if lane in self._busy:
            raise ValueError(f"lane {lane} has a launch that was neither kept nor discarded")
        return state

    # -- prompts -------------------------------------------------------------------------------------------------

    @allocating
    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """Absorb a span of the prompt, in slices where they keep the bits."""
        state = self._settled(lane)
        if not state.length == span.start < span.stop <= min(len(ids), state.capacity):
            raise ValueError(
                f"span {span.start}..{span.stop} of {len(ids)} ids on a lane of {state.capacity} "
                f"that absorbed {state.length}"
            )
        part = np.asarray(ids[span.start : span.stop], np.int64)
        check_ids(int(part.min()), int(part.max()), self._limits.vocabulary)
        self.forward.absorb(state, part, self._limits.prefill_slice)
        ticket = Ticket(next(self._numbers), len(part))
        self._prefills.add(ticket.id)
        return ticket

    # -- rounds --------------------------------------------------------------------------------------------------

    @allocating
    def launch(self, batch: RoundBatch) -> Ticket:
        """Queue the rows of a round. Raises ValueError, before any row is run, for a batch the limits do not allow."""
        if not batch.windows or batch.rows > self._limits.batch_rows:
            raise ValueError(f"a launch of {batch.rows} rows; 1 to {self._limits.batch_rows} may share one")
        if len({asked.lane for asked in batch.windows}) != len(batch.windows):
            raise ValueError("a lane stands twice in one launch")
        launch = Launch[A](tuple(self._plan(asked) for asked in batch.windows), None)
        parts = [LanePart(w.state, w.asked.window.tokens, w.layout) for w in launch.windows]
        launch.logits = self.forward.launch(parts, launch.drawn())
        ticket = Ticket(next(self._numbers), batch.rows)
        self._launches[ticket.id] = launch
        self._busy.update((window.lane, ticket.id) for window in launch.windows)
        return ticket

    def _plan(self, asked: LaneWindow) -> LaunchedWindow[A]:
        state, window = self._settled(asked.lane), asked.window
        check_asked(asked, state.length, self._limits)
        layout = lay_out(window, asked.position)
        if int(layout.positions.max()) >= state.capacity:
            raise ValueError(f"lane {asked.lane} can absorb {state.capacity} tokens, a row stands past them")
        return LaunchedWindow(asked.lane, state, asked, layout)

    @allocating
    def collect(self, ticket: Ticket) -> Draws:
        """Wait for a launch's draws; none for a prefill's ticket. Raises ValueError for a ticket collected before."""
        if ticket.id in self._prefills:
            self._prefills.remove(ticket.id)
            return Draws(())
        launch = self._launches.get(ticket.id)
        if launch is None or launch.logits is None:
            raise ValueError(f"ticket {ticket.id} has nothing to collect")
        logits, launch.logits = launch.logits, None
        return launch.draws(self.forward.decoder.host(logits))

    @allocating
    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        """Commit exactly the rows of each path. Raises ValueError, changing nothing, for paths that do not fit."""
        launch = self._launches.get(ticket.id)
        if launch is None or launch.logits is not None or len(paths) != len(launch.windows):
            raise ValueError(f"ticket {ticket.id} cannot keep {len(paths)} paths: settled, not collected, or of others")
        for window, path in zip(launch.windows, paths, strict=True):
            window.check_path(path)
            if path and self._busy.get(window.lane) != ticket.id:
                raise ValueError(f"lane {window.lane} is closed, its rows cannot stay")
        del self._launches[ticket.id]
        for window, path in zip(launch.windows, paths, strict=True):
            if self._busy.get(window.lane) == ticket.id:
                window.state.keep(tuple(path))
                del self._busy[window.lane]

    def discard(self, ticket: Ticket) -> None:
        """Forget a launch as if it had not been made. Raises ValueError for one that was kept or discarded."""
        launch = self._launches.pop(ticket.id, None)
        if launch is None:
            raise ValueError(f"ticket {ticket.id} has nothing to discard")
        for window in launch.windows:
            if self._busy.get(window.lane) == ticket.id:
                window.state.discard()
                del self._busy[window.lane]

    @allocating
    def propose(self, specs: Sequence[ProposeSpec]) -> Sequence[Chain | Lattice | None]:
        """Drafts of the head for each lane; None where the lane has no head or nothing was absorbed yet."""
        return [self._propose(spec) for spec in specs]

    def _propose(self, spec: ProposeSpec) -> Chain | Lattice | None:
        state, head = self._settled(spec.lane), self.forward.head
        if head is None or state.head is None:
            return None
        check_ids(spec.pending, spec.pending, self._limits.vocabulary)
        if not 0 < spec.depth <= head.limits.most:
            raise ValueError(f"{spec.depth} drafts asked of a head that makes 1 to {head.limits.most}")
        return state.head.propose(spec)

    # -- images --------------------------------------------------------------------------------------------------

    @allocating
    def export(self, lane: Lane) -> LaneImage:
        """A lane's committed state in host memory."""
        return image_of(self._settled(lane), self.forward, self._identity)

    @allocating
    def restore(self, image: LaneImage, capacity: int) -> Lane:
        """A lane with an exported state. Raises ValueError for another engine's image, CapacityError for no room."""
        self._require_room(capacity)
        if image.length > capacity:
            raise CapacityError(f"An image of {image.length} tokens does not fit a lane of {capacity}.")
        state = self.forward.open(capacity, drafts=True)
        load_image(image, state, self.forward, self._identity)
        return self._add(state)

    def shutdown(self) -> None:
        """Free every lane and launch."""
        self._lanes.clear()
        self._busy.clear()
        self._launches.clear()
        self._prefills.clear()
        self.forward.decoder.ops.close()
