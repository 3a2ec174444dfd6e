"""Who may hold a lane and who may run, by memory: the arithmetic of `domain.memory` with an allocator's figures.

Order of means: freed buffers are handed back, then retained prefixes are given up, but only where that is enough; then
requests wait, streams pause, lanes are given up, and at last a request ends. Knows no lane, thread or client: the
scheduler hands in what each stream holds and carries out what is decided. Used by the engine thread alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tensorfold.application.memory_figures import MemoryFigures
from tensorfold.application.ports.machine import MemoryRuntime
from tensorfold.domain.memory.budgets import gib
from tensorfold.domain.memory.gate import AHEAD, Gate, Stake, admission, gate, held_bytes, needed
from tensorfold.domain.memory.gate import Admission as Fitting
from tensorfold.domain.memory.plan import MemoryPlan


@dataclass(frozen=True, slots=True)
class Admitted:
    """The request may have a lane now, and `reply` tokens of reply at most."""

    reply: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The request waits until others leave."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The request does not fit, whoever leaves; `message` may be shown to the client."""

    message: str


Verdict = Admitted | Wait | Refused


class AdmissionControl(Protocol):
    """What the scheduler asks. Streams are stakes, older ones with lower indices."""

    @property
    def binds(self) -> bool:
        """Whether the allocator holds to the budget by itself."""
        ...

    def admit(self, ask: Stake, streams: Sequence[Stake], param: str, keep: object = None) -> Verdict:
        """Whether a request may have a lane beside `streams`; `param` names the field its prompt came in.

        `keep` is the kept state that it is about to resume, which is not given up for it.
        """
        ...

    def before_round(self, streams: Sequence[Stake]) -> Gate:
        """Who runs next, who gives a lane up or gets one again, who ends."""
        ...

    def ended(self, stake: Stake) -> str:
        """What the client of a stream that `before_round` ended is told."""
        ...

    def release(self) -> None:
        """Hand freed buffers back: the server is idle, or an allocation failed."""
        ...

    def figures(self, streams: Sequence[Stake], paused: Sequence[Stake] = ()) -> MemoryFigures | None:
        """What memory comes to while `streams` run and others are `paused`; None where nothing is known of it.

        Any thread may ask.
        """
        ...


class Retained(Protocol):
    """Kept states that may be given up for room, in bytes. `keep` is the one that a request is about to resume."""

    def reclaimable(self, keep: object = None) -> int:
        """What giving up all but `keep` would free."""
        ...

    def held(self) -> int:
        """What all of them take."""
        ...

    def uncounted(self) -> int:
        """What of them the allocator's figures lack: they may lie in the host's memory."""
        ...

    def evict(self, keep: object = None) -> int:
        """Give one up; the bytes freed, 0 when there is none but `keep`."""
        ...


class NothingRetained:
    """A server that keeps no states."""

    def reclaimable(self, keep: object = None) -> int:
        """None."""
        return 0

    def held(self) -> int:
        """None."""
        return 0

    def uncounted(self) -> int:
        """None."""
        return 0

    def evict(self, keep: object = None) -> int:
        """None."""
        return 0


class Unlimited:
    """Admission where nothing is known of memory: all is admitted and all run."""

    binds = False

    def admit(self, ask: Stake, streams: Sequence[Stake], param: str, keep: object = None) -> Verdict:
        """Admitted."""
        return Admitted(ask.capacity - ask.prompt)

    def before_round(self, streams: Sequence[Stake]) -> Gate:
        """Everyone."""
        return Gate(frozenset(stake.index for stake in streams if stake.lane))

    def ended(self, stake: Stake) -> str:
        """Nobody is ended."""
        return ""

    def release(self) -> None:
        """Nothing is held."""

    def figures(self, streams: Sequence[Stake], paused: Sequence[Stake] = ()) -> MemoryFigures | None:
        """Nothing is known."""
        return None


class MemoryAdmission:
    """Admission within a plan's budget.

    Where the runtime tells what is active, everything but the lanes' own bytes counts against the budget as measured;
    where it cannot, the weights as reckoned and what is retained do.
    """

    def __init__(
        self, plan: MemoryPlan, runtime: MemoryRuntime, retained: Retained | None = None, *, ahead: int = AHEAD
    ) -> None:
        """`ahead` tokens of a reply without a limit count beforehand."""
        self.plan = plan
        self._ahead = ahead
        self._runtime = runtime
        self.retained: Retained = retained or NothingRetained()
        self.binds = False
        self._known: tuple[tuple[int, int, bool], ...] = ()
        self._ends: int | None = None
        self._beside: int | None = None

    def begin(self) -> None:
        """Bind the allocator to the budget, as far as the runtime does; called before a weight is read."""
        self.binds = self._runtime.limit(self.plan.budget.allocator)
        self._runtime.limit_cache(self.plan.budget.cache)

    def admit(self, ask: Stake, streams: Sequence[Stake], param: str, keep: object = None) -> Verdict:
        """As the port says; states that are given up for it are never `keep`."""
        ask, streams = self._counted(ask), [self._counted(stake) for stake in streams]
        if streams and any(not stake.lane for stake in streams):
            return Wait()
        given = self._fitting(ask, streams, keep)
        if not given.short:
            self._hand_back(needed(self.plan, [*streams, ask]), streams)
            return Admitted(given.reply)
        return Wait() if streams else Refused(self._refusal(ask, given, param))

    def before_round(self, streams: Sequence[Stake]) -> Gate:
        """As the port says. While all fit to their ends, a round costs one comparison."""
        if self._ample(streams):
            return Gate(frozenset(stake.index for stake in streams))
        streams = [self._counted(stake) for stake in streams]
        decided = gate(self.plan, self._room(streams), streams)
        held = [stake for stake in streams if stake.lane]
        if len(decided.run) < len(held) or decided.end:
            short = needed(self.plan, held) - self._room(streams)
            if self._reclaim(short, None) or ((decided.drop or decided.end) and self._reclaim_all()):
                decided = gate(self.plan, self._room(streams), streams)
        self._hand_back(needed(self.plan, [s for s in streams if s.index in decided.run], held), streams)
        return decided

    def ended(self, stake: Stake) -> str:
        """What the client of a stream that memory ended is told."""
        return (
            f"The request ended after {max(0, stake.tokens - stake.prompt)} tokens of its reply because memory ran "
            f"out: its next step takes more than the {gib(max(0, self.plan.room))} beside the weights. Start the "
            "server with a lower `--parallel` or a smaller `--context`, or ask for a shorter reply."
        )

    def release(self) -> None:
        """Hand freed buffers back."""
        self._runtime.release()

    def figures(self, streams: Sequence[Stake], paused: Sequence[Stake] = ()) -> MemoryFigures | None:
        """As the port says."""
        plan, runtime = self.plan, self._runtime
        running, held = [self._counted(stake) for stake in streams if stake.lane], [s for s in paused if s.lane]
        return MemoryFigures(
            budget=plan.budget.process,
            model=plan.budget.allocator,
            weights=plan.footprint.weights,
            reserved=needed(plan, running, [*running, *held]),
            kept=self.retained.held(),
            active=runtime.active(),
            cached=runtime.cached(),
            peak=runtime.peak(),
        )

    def _counted(self, stake: Stake) -> Stake:
        return stake if stake.ahead == self._ahead else replace(stake, ahead=self._ahead)

    # -- inside --------------------------------------------------------------------------------------------------

    def _fitting(self, ask: Stake, streams: Sequence[Stake], keep: object) -> Fitting:
        given = admission(self.plan, self._room(streams), ask, streams)
        lacks = given.short or needed(self.plan, [*streams, ask]) - self._room(streams)
        if lacks > 0 and self._reclaim(lacks, keep):
            given = admission(self.plan, self._room(streams), ask, streams)
        return given

    def _ample(self, streams: Sequence[Stake]) -> bool:
        """Whether all have lanes and fit with all that they may come to, beside what is active and cached now."""
        key = tuple((stake.index, stake.capacity, stake.lane) for stake in streams)
        if key != self._known:
            ends = [replace(stake, whole=True) for stake in streams]
            self._known, self._ends = key, needed(self.plan, ends) if all(stake.lane for stake in streams) else None
        if self._ends is None:
            return False
        active = self._runtime.active()
        if active is None:
            return self._ends <= self.plan.room - self.retained.held()
        # Their own bytes count twice here, which errs on the side of a closer look.
        return self._ends + active + (self._runtime.cached() or 0) <= self.plan.budget.allocator

    def _room(self, streams: Sequence[Stake]) -> int:
        """Bytes for lanes and work."""
        active = self._runtime.active()
        if active is None:
            return self.plan.room - self.retained.held()
        return self.plan.budget.allocator - self._used(active, streams) - self.retained.uncounted()

    def _used(self, active: int, streams: Sequence[Stake]) -> int:
        """What of the `active` bytes is not lanes'.

        Buffers grow with rows that are then not kept, on some devices when these are launched and on others only when
        they are: between the two it is what it was when that made no difference.
        """
        least, most = held_bytes(self.plan, streams)
        kept = self.retained.held() - self.retained.uncounted()
        if least == most:
            self._beside = active - least - kept
        known = active - least if self._beside is None else self._beside + kept
        return max(0, active - most, min(known, active - least))

    def _hand_back(self, need: int, streams: Sequence[Stake]) -> None:
        """Freed buffers, where what is to come does not fit beside them."""
        cached = self._runtime.cached() or 0
        if cached and need + cached > self._room(streams):
            self._runtime.release()

    def _reclaim(self, short: int, keep: object) -> bool:
        """Give up retained states until `short` bytes are free; none where all of them would not do."""
        if short <= 0 or self.retained.reclaimable(keep) < short:
            return False
        while short > 0 and (freed := self.retained.evict(keep)):
            short -= freed
        return True

    def _reclaim_all(self) -> bool:
        """Give up all retained states: streams stand before states of prompts that may never come."""
        freed = 0
        while more := self.retained.evict():
            freed += more
        return freed > 0

    def _refusal(self, ask: Stake, given: Fitting, param: str) -> str:
        reply = ask.capacity - ask.prompt
        asked = f"{ask.prompt} in the {param}" + (f", {reply} in the completion" if ask.whole else "")
        room = given.largest - ask.prompt
        hint = (
            f"The largest reply that fits this prompt is {room} tokens."
            if room > 0
            else f"Shorten the {param} to at most {max(0, given.largest - 1)} tokens."
        )
        total = ask.capacity if ask.whole else ask.prompt + 1
        return (
            f"This model's maximum context length is {given.largest} tokens with the memory there is now. However, you "
            f"requested {total} tokens ({asked}), for which {gib(given.short)} of memory lack. {hint} "
            "A smaller `--context` at startup tells clients what fits."
        )
