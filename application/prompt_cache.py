"""States of prompts that were read before: where a new prompt resumes, which states are kept, who waits for whom.

A resumed prompt gets the very state that reading it from its start would give; where that is not certain it is read
from its start. Nothing here fails a request: a state that cannot be copied, restored or read back costs its time only.
A model that resumes from prompt ends keeps states as forks on its device, any other as images in the host's memory.
Used by the engine's thread alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.faults import named
from tensorfold.application.kept_states import NO_SIZES, Footing, Forks, ForkSizes, Images, KeptStates, image_size
from tensorfold.application.ports.target_model import CapacityError, Lane, Span, TargetModel
from tensorfold.application.snapshots import SnapshotShelf
from tensorfold.domain.prompts.checkpoints import agreement, checkpoints, common_cut
from tensorfold.domain.prompts.chunks import ChunkPlan, ChunkRule
from tensorfold.domain.prompts.retained import SLOTS, Prefix, RetainedPrefixes, ids_of

WORTH = 32
"""Ids that must be saved before one prompt waits for another."""


@dataclass(slots=True, eq=False)
class PromptFill:
    """A prompt on its way into a lane: `filled` of its ids are absorbed, `resumed` of those came from a kept state.

    At positions in `keep_at` its state is kept. It waits while `leader` has not come to `leader_at`.
    """

    ids: NDArray[np.int32]
    plan: ChunkPlan
    background: bool = False
    filled: int = 0
    resumed: int = 0
    seconds: float = 0.0
    source: Prefix[Any] | None = None
    footing: Footing = field(default_factory=Footing)
    keep_at: set[int] = field(default_factory=set)
    leader: PromptFill | None = None
    leader_at: int = 0
    done: bool = False

    def spans(self) -> Iterator[Span]:
        """What is left to absorb, a call each."""
        return (Span(start, stop) for start, stop in self.plan.spans(self.filled))


class PromptCache:
    """Kept states of one model, within `budget` bytes; 0 keeps none.

    `shelf` keeps images on disk; `sizes` are those of forks.
    """

    def __init__(
        self,
        model: TargetModel,
        rule: ChunkRule,
        budget: int = 0,
        *,
        slots: int = SLOTS,
        shelf: SnapshotShelf | None = None,
        sizes: ForkSizes = NO_SIZES,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.rule = rule
        self._model = model
        self._slice = model.limits.prefill_slice
        self._log = log
        forks = model.limits.resume == "prompt_end"
        self._states: KeptStates = Forks(model, sizes, log) if forks else Images(model)
        self._shelf = None if forks else shelf
        self._kept: RetainedPrefixes[Any] = RetainedPrefixes(
            budget, slots, measure=self._states.size, dropped=self._states.drop
        )
        self._before: PromptCache | None = None
        self._standing: list[Footing] = []
        self._fills: list[PromptFill] = []
        self._peeked: tuple[Sequence[int], NDArray[np.int32], ChunkPlan] | None = None

    @property
    def budget(self) -> int:
        """Bytes that may be kept."""
        return self._kept.budget

    def __len__(self) -> int:
        return len(self._kept)

    def lanes(self) -> frozenset[Lane]:
        """Lanes of the model that are kept states and no stream's."""
        before = frozenset[Lane]() if self._before is None else self._before.lanes()
        return before if self._states.on_host else before | {entry.state.lane for entry in self._kept}

    def succeed(self, before: PromptCache) -> None:
        """Take the place of another cache of the model, whose states are given up when the engine calls next."""
        self._before = before

    # -- a prompt's way ------------------------------------------------------------------------------------------

    def peek(self, prompt: Sequence[int]) -> object:
        """The kept state that a prompt would resume, to be spared by whoever makes room for it; None where none is."""
        if not len(self._kept):
            return None
        if self._peeked is None or self._peeked[0] is not prompt:
            # A request that waits is asked for again and again.
            ids = ids_of(prompt)
            self._peeked = prompt, ids, self.rule.plan(ids, self._slice)
        _, ids, plan = self._peeked
        return self._kept.match(ids, plan)

    def begin(self, prompt: Sequence[int], *, background: bool = False) -> PromptFill:
        """A prompt that is to be read: what it resumes from, and whom it waits for."""
        self._clear_before()
        ids = ids_of(prompt)
        fill = PromptFill(ids, self.rule.plan(ids, self._slice), background)
        if self.budget:
            self._resume(fill)
            self._follow(fill)
            self._fills.append(fill)
        return fill

    def open(self, fill: PromptFill, capacity: int) -> Lane:
        """A lane with what the fill resumes from. Raises CapacityError when none is left, and the fill is over."""
        try:
            lane = self._open(fill, capacity)
        except BaseException:
            self.leave(fill)
            raise
        self._standing.append(fill.footing)
        return lane

    def closed(self, fill: PromptFill) -> None:
        """The lane that a prompt was read into is closed."""
        if fill.footing in self._standing:
            self._standing.remove(fill.footing)
        fill.footing = Footing()

    def waits(self, fill: PromptFill) -> bool:
        """Whether a prompt should wait: another one is on its way to a state that both pass through."""
        leader = fill.leader
        if leader is None:
            return False
        if not leader.done and leader.filled < fill.leader_at:
            return True
        fill.leader = None
        return False

    def catch_up(self, fill: PromptFill) -> bool:
        """Whether a longer state than the one it began with is there now, for a prompt that absorbed nothing since.

        Its lane is then to be closed and opened anew.
        """
        if not self.budget or fill.filled > fill.resumed or fill.done:
            return False
        before = fill.resumed
        self._resume(fill)
        return fill.resumed > before

    def passed(self, fill: PromptFill, lane: Lane, filled: int, seconds: float) -> None:
        """A prompt's lane has absorbed `filled` ids, the last of them in `seconds`."""
        fill.filled = filled
        fill.seconds += seconds
        if filled in fill.keep_at:
            self._keep(fill, lane)
        if filled >= fill.plan.end:
            self.leave(fill)

    def leave(self, fill: PromptFill, lane: Lane | None = None) -> None:
        """A prompt is read, or given up: what `lane` has absorbed of it is kept where another may resume there."""
        if (
            lane is not None
            and not fill.done
            and fill.filled >= fill.resumed + WORTH
            and fill.plan.cuts_at(fill.filled)
        ):
            self._keep(fill, lane)
        fill.done = True
        if fill in self._fills:
            self._fills.remove(fill)

    def close(self) -> None:
        """The server ends: the conversations used last go to disk; what lies on the device is given up."""
        self._clear_before()
        if not self._states.on_host:
            self.clear()
        if self._shelf is None:
            return
        kept = [entry for entry in self._kept if not entry.pinned]
        tips = [e for e in kept if not any(_continues(other, e) for other in kept)]
        self._shelf.keep_conversations(tips)

    def clear(self) -> None:
        """Give everything up."""
        for entry in list(self._kept):
            self._kept.take(entry)

    # -- memory --------------------------------------------------------------------------------------------------

    def held(self) -> int:
        """Bytes that streams cannot have for what is kept."""
        return self._states.held(self._kept, self._standing)

    def uncounted(self) -> int:
        """All of them where they are the host's, none on the device."""
        return self._kept.size if self._states.on_host else 0

    def reclaimable(self, keep: object = None) -> int:
        """Bytes that giving up all but `keep` would free."""
        spared = [entry for entry in self._kept if entry is keep]
        return self.held() - self._states.held(spared, self._standing)

    def shared(self, keep: object) -> int:
        """Bytes of `held` that a lane resuming `keep` would count as its own."""
        if not isinstance(keep, Prefix) or self._states.on_host:
            return 0
        return self.held() - self._states.held(self._kept, self._standing, keep)

    def evict(self, keep: object = None) -> int:
        """Give up one that is not `keep`, or as many as free anything; the bytes freed, 0 when there is none."""
        if not self.reclaimable(keep):
            return 0
        before = self.held()
        while self._kept.evict_one(keep if isinstance(keep, Prefix) else None) is not None:
            if (freed := before - self.held()) > 0:
                return freed
        return 0

    # -- inside --------------------------------------------------------------------------------------------------

    def _resume(self, fill: PromptFill) -> None:
        entry = self._kept.match(fill.ids, fill.plan)
        entry = self._from_disk(fill, 0 if entry is None else entry.length) or entry
        if entry is None or entry.length <= fill.resumed:
            return
        agreed = agreement(entry.prompt, fill.ids)
        self._kept.use(entry, fill.ids)
        fill.source, fill.seconds = entry, entry.seconds
        fill.filled = fill.resumed = entry.length
        fill.keep_at = {at for at in fill.keep_at if at > entry.length}
        fill.keep_at.update(checkpoints(fill.plan, entry.length, agreed))

    def _from_disk(self, fill: PromptFill, beyond: int) -> Prefix[Any] | None:
        if self._shelf is None:
            return None
        while (snapshot := self._shelf.match(fill.ids, fill.plan, max(beyond, fill.resumed))) is not None:
            if snapshot.size > self.budget:
                return None
            image = self._shelf.load(snapshot)
            if image is None:
                continue
            pinned = snapshot.kind == "system"
            entry: Prefix[Any] = Prefix(snapshot.ids, snapshot.starts, image, image_size(image), pinned=pinned)
            if self._kept.insert(entry):
                return entry
            self._shelf.forget(snapshot.key)
        return None

    def _follow(self, fill: PromptFill) -> None:
        fill.keep_at.update(checkpoints(fill.plan, fill.resumed))
        for leader in self._fills:
            if leader.background and not fill.background:
                continue
            agreed = agreement(leader.ids, fill.ids)
            behind = max(leader.filled, fill.resumed, fill.leader_at)
            cut = common_cut(leader.plan, fill.plan, agreed, behind, WORTH)
            if cut is not None and leader.filled < cut:
                fill.leader, fill.leader_at = leader, cut
        if fill.leader is not None:
            fill.leader.keep_at.add(fill.leader_at)

    def _open(self, fill: PromptFill, capacity: int) -> Lane:
        while (source := fill.source) is not None:
            try:
                make = partial(self._states.lane, source.state, capacity, fill.footing)
                lane = self._with_room(make, source)
            except CapacityError:
                raise
            except Exception as fault:
                if isinstance(fault, MemoryError) and self._states.on_host:
                    # Perhaps there is no room for the copy beside what it is made of: the store's own goes for it.
                    if source not in list(self._kept):
                        raise
                    self._kept.take(source)
                    continue
                self._log(f"a kept state of {source.length} ids could not be resumed: {named(fault)}")
                self._kept.take(source)
                self._start_over(fill)
            else:
                fill.source = None
                return lane
        return self._with_room(partial(self._model.open, capacity))

    def _with_room(self, make: Callable[[], Lane], keep: Prefix[Any] | None = None) -> Lane:
        """A lane, kept states of the device given up for it one by one, but for `keep`."""
        while True:
            try:
                return make()
            except CapacityError:
                if self._states.on_host or self._kept.evict_one(keep) is None:
                    raise

    def _start_over(self, fill: PromptFill) -> None:
        fill.source, fill.seconds = None, 0.0
        fill.filled = fill.resumed = 0
        fill.keep_at.update(checkpoints(fill.plan, 0))

    def _keep(self, fill: PromptFill, lane: Lane) -> None:
        """Keep a copy of what a lane has absorbed; one that cannot be had changes nothing else."""
        if not self.budget:
            return
        length = fill.filled
        try:
            state, size = self._copied(fill, lane)
        except Exception as fault:
            self._log(f"a state of {length} ids was not kept: {named(fault)}")
            return
        pinned = length == fill.plan.shared
        starts = fill.plan.before(length)
        entry: Prefix[Any] = Prefix(fill.ids[:length].copy(), starts, state, size, fill.seconds, pinned, fill.ids)
        if not self._kept.insert(entry):
            self._states.drop(state)
        if pinned and self._shelf is not None:
            self._shelf.keep_system(entry)

    def _copied(self, fill: PromptFill, lane: Lane) -> tuple[Any, int]:
        """The state of a lane and its bytes; on a device that is full of kept states, in the place of another."""
        while True:
            try:
                return self._states.copy(lane, fill.filled, fill.footing)
            except CapacityError:
                if self._states.on_host or self._kept.evict_one() is None:
                    raise

    def _clear_before(self) -> None:
        if self._before is not None:
            before, self._before = self._before, None
            before._clear_before()
            if not before._states.on_host:
                before.clear()


def _continues(later: Prefix[Any], earlier: Prefix[Any]) -> bool:
    return later.length > earlier.length and np.array_equal(later.ids[: earlier.length], earlier.ids)
