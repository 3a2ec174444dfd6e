"""States of prompts that were read before: where a new prompt resumes, which states are kept, who waits for whom.

A resumed prompt gets the very state that reading it from its start would give; where that is not certain it is read
from its start. Nothing here fails a request: a state that cannot be copied, restored or read back costs its time only.
Used by the engine's thread alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.faults import named
from tensorfold.application.ports.target_model import CapacityError, Lane, LaneImage, Span, TargetModel
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
    source: Prefix[LaneImage] | None = None
    keep_at: set[int] = field(default_factory=set)
    leader: PromptFill | None = None
    leader_at: int = 0
    done: bool = False

    def spans(self) -> Iterator[Span]:
        """What is left to absorb, a call each."""
        return (Span(start, stop) for start, stop in self.plan.spans(self.filled))


class PromptCache:
    """Kept states of one model, within `budget` bytes; 0 keeps none. `shelf` keeps some on disk."""

    def __init__(
        self,
        model: TargetModel,
        rule: ChunkRule,
        budget: int = 0,
        *,
        slots: int = SLOTS,
        shelf: SnapshotShelf | None = None,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.rule = rule
        self._model = model
        self._slice = model.limits.prefill_slice
        self._log = log
        self._shelf = shelf
        self._kept: RetainedPrefixes[LaneImage] = RetainedPrefixes(budget, slots)
        self._fills: list[PromptFill] = []
        self._peeked: tuple[Sequence[int], NDArray[np.int32], ChunkPlan] | None = None

    @property
    def budget(self) -> int:
        """Bytes that may be kept."""
        return self._kept.budget

    def __len__(self) -> int:
        return len(self._kept)

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
            return self._open(fill, capacity)
        except BaseException:
            self.leave(fill)
            raise

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
        """The server ends: the conversations used last go to disk."""
        if self._shelf is None:
            return
        kept = [entry for entry in self._kept if not entry.pinned]
        tips = [e for e in kept if not any(_continues(other, e) for other in kept)]
        self._shelf.keep_conversations(tips)

    # -- memory --------------------------------------------------------------------------------------------------

    def held(self) -> int:
        """Bytes kept."""
        return self._kept.size

    def uncounted(self) -> int:
        """All of them: images are the host's."""
        return self._kept.size

    def reclaimable(self, keep: object = None) -> int:
        """Bytes that giving up all but `keep` would free."""
        return sum(entry.size for entry in self._kept if entry is not keep)

    def evict(self, keep: object = None) -> int:
        """Give one up that is not `keep`; the bytes freed, 0 when there is none."""
        victim = self._kept.evict_one(keep if isinstance(keep, Prefix) else None)
        return 0 if victim is None else victim.size

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

    def _from_disk(self, fill: PromptFill, beyond: int) -> Prefix[LaneImage] | None:
        if self._shelf is None:
            return None
        while (snapshot := self._shelf.match(fill.ids, fill.plan, max(beyond, fill.resumed))) is not None:
            if snapshot.size > self.budget:
                return None
            image = self._shelf.load(snapshot)
            if image is None:
                continue
            pinned = snapshot.kind == "system"
            entry = Prefix(snapshot.ids, snapshot.starts, image, _size(image), pinned=pinned)
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
                lane = self._model.restore(source.state, capacity)
            except CapacityError:
                raise
            except MemoryError:
                # Perhaps there is no room for the copy beside what it is made of: the store's own is given up for it.
                if source not in list(self._kept):
                    raise
                self._kept.take(source)
            except Exception as fault:
                self._log(f"a kept state of {source.length} ids could not be resumed: {named(fault)}")
                self._kept.take(source)
                self._start_over(fill)
            else:
                fill.source = None
                return lane
        return self._model.open(capacity)

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
            image = self._model.export(lane)
        except Exception as fault:
            self._log(f"a state of {length} ids was not kept: {named(fault)}")
            return
        pinned = length == fill.plan.shared
        starts = fill.plan.before(length)
        entry = Prefix(fill.ids[:length].copy(), starts, image, _size(image), fill.seconds, pinned, fill.ids)
        self._kept.insert(entry)
        if pinned and self._shelf is not None:
            self._shelf.keep_system(entry)


def _size(image: LaneImage) -> int:
    return sum(len(data) for _, data in image.buffers)


def _continues(later: Prefix[LaneImage], earlier: Prefix[LaneImage]) -> bool:
    return later.length > earlier.length and np.array_equal(later.ids[: earlier.length], earlier.ids)
