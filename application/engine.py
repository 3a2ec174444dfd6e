"""One round, readable top to bottom: propose, plan rows, launch, collect, commit, keep, remember.

The engine runs streams over the model's port and knows no device, no queue and no client. Nothing in it can change a
token: the domain's acceptance and the model's rows decide those; proposers, widths and neighbours only change speed.
A fault ends the stream it belongs to and no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tensorfold.application.counters import Counters
from tensorfold.application.drafts import Drafting
from tensorfold.application.flight import Flight
from tensorfold.application.lanes import Lanes
from tensorfold.application.listeners import harmless
from tensorfold.application.live import Live
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.target_model import Draws, LaneWindow, Path, RoundBatch, TargetModel, Ticket
from tensorfold.application.prompt_cache import PromptCache
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.costs import CostCurve
from tensorfold.domain.drafting.sources import DraftSource, DraftSourceFactory
from tensorfold.domain.prompts.chunks import ChunkRule
from tensorfold.domain.scheduling.turns import TurnOrder
from tensorfold.domain.streams import Committed, Stream
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import Window

Log = Callable[[str], None]
_LOGGED_RETRIES = 10
_TRIES = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round did to one stream: tokens landed with their rows' digests, or the fault that ends it."""

    live: Live
    committed: Committed | None
    fault: Exception | None = None
    prints: tuple[int, ...] = ()


@dataclass(slots=True)
class _Turn:
    """One stream's part of a round in the making."""

    live: Live
    window: Window
    source: str | None
    committed: Committed | None = None
    fault: Exception | None = None
    prints: tuple[int, ...] = ()
    tries: int = 0
    stale: bool = False


class Engine:
    """Runs rounds for live streams over one model. Every call comes from the thread that loaded the model."""

    def __init__(
        self,
        model: TargetModel,
        settings: EngineSettings,
        clock: Clock,
        *,
        sources: Sequence[DraftSourceFactory] = (),
        counters: Counters | None = None,
        log: Log = lambda line: None,
    ) -> None:
        self.model = model
        self.counters = counters if counters is not None else Counters()
        self.flight = Flight(clock, settings.stall_factor, settings.stall_grace_s)
        self._log = harmless(log)
        self._limits = model.limits
        self._curve = CostCurve(model.costs.rows_ms)
        self._drafting = Drafting(model, settings, self._curve, sources, self.counters, self._log, self.flight)
        prompts = PromptCache(model, ChunkRule(settings.prefill_chunk))
        self._lanes = Lanes(model, prompts, self.flight, self._curve, self.counters, self._log)
        self._turns = TurnOrder(self._limits.max_streams, self._limits.batch_rows)
        self._opened = 0
        self.relieve: Callable[[], None] = lambda: None
        """Called before a launch for which memory could not be had is tried again."""

    # -- opening and filling -------------------------------------------------------------------------------------

    @property
    def prompts(self) -> PromptCache:
        """How prompts are planned, and which of their states are kept."""
        return self._lanes.prompts

    @prompts.setter
    def prompts(self, prompts: PromptCache) -> None:
        """Plan and keep otherwise; before the first stream is opened."""
        self._lanes.prompts = prompts

    def open(self, stream: Stream, source: DraftSource | None = None, *, background: bool = False) -> Live:
        """Give a stream a lane, and `source` beside its usual draft sources. Raises CapacityError when none is left."""
        lane, fill = self._lanes.open(stream, background=background)
        self._opened += 1
        live = Live(self._opened, stream, lane, fill, self._drafting.open(stream, source))
        if live.to_fill <= 0:
            self._lanes.prompts.leave(fill)
            stream.absorb_prompt()
        return live

    def waits(self, live: Live) -> bool:
        """Whether a prompt should not be filled now, since another one is reading what it needs."""
        return self._lanes.prompts.waits(live.fill)

    def fill(self, live: Live) -> bool:
        """Absorb the next slice of a prompt; True when the stream may take rounds."""
        return self._lanes.fill(live)

    def close(self, live: Live, *, keep: bool = False) -> None:
        """Free a stream's lane, if it has one; with `keep`, what was read of its prompt is kept."""
        if not live.dropped:
            self._lanes.close(live, keep=keep)

    def drop(self, live: Live, *, keep: bool = False) -> None:
        """Free the lane of a stream that is to go on later; until `resume` and `fill` it takes no round."""
        self._lanes.drop(live, keep=keep)
        self.counters.dropped += 1

    def resume(self, live: Live) -> None:
        """An empty lane for a dropped stream; `fill` makes its state anew. Raises CapacityError when none is left."""
        self._lanes.resume(live)

    # -- the round -----------------------------------------------------------------------------------------------

    def round(self, streams: Sequence[Live]) -> list[Outcome]:
        """One round over the streams whose turn it is; every stream served lands at least one token or a fault."""
        served = self._choose(streams)
        planned = self._drafting.plan(served)
        turns = [_Turn(live, window, source) for live, (window, source) in zip(served, planned, strict=True)]
        outcomes: list[Outcome] = []
        for group in self._groups(turns):
            self._run(group)
            outcomes += [Outcome(t.live, t.committed, t.fault, t.prints) for t in group]
        self.counters.rounds += 1
        return outcomes

    def _choose(self, streams: Sequence[Live]) -> list[Live]:
        """The streams whose turn it is: all of them while they fit one round."""
        rows = [self._drafting.fixed_rows(live.stream) for live in streams]
        return [streams[i] for i in self._turns.take([live.index for live in streams], rows)]

    def _groups(self, turns: list[_Turn]) -> list[list[_Turn]]:
        """Streams that share a launch: all, where the model's rows keep their bits beside others', else each alone."""
        return [turns] if self._limits.shares_rounds or len(turns) < 2 else [[t] for t in turns]

    def _run(self, group: list[_Turn]) -> None:
        try:
            for turn in group:
                if turn.stale:
                    self._lanes.rebuild(turn.live)
                    turn.stale = False
            ticket, draws = self._launch(group)
        except Exception as fault:
            self._retry_alone(group, fault)
            return
        paths = [self._commit(turn, drawn) for turn, drawn in zip(group, draws.tokens, strict=True)]
        if draws.prints:
            _take_prints(group, draws, paths)
        try:
            self.model.keep(ticket, paths)
        except Exception as fault:
            self._log(f"keep failed, rebuilding {len(group)} lanes: {fault!r}")
            for turn in group:
                if turn.committed is not None and turn.committed.finish is None:
                    self._rebuild_or_end(turn)
        self._remember(group)

    def _launch(self, group: list[_Turn]) -> tuple[Ticket, Draws]:
        """Launch a group's rows and wait for their draws; lanes stand as they stood when it raises."""
        batch = RoundBatch(tuple(_asked(turn.live, turn.window) for turn in group))
        rows = batch.rows
        for turn, asked in zip(group, batch.windows, strict=True):
            turn.live.reach = max(turn.live.reach, asked.position + len(asked.window))
        began = self.flight.depart("round", self._curve.ms(rows))
        try:
            ticket = self.model.launch(batch)
            try:
                draws = self.model.collect(ticket)
            except Exception:
                self._discard(ticket, group)
                raise
        finally:
            took = self.flight.arrive() - began
        self._curve.observe(rows, 1000.0 * took)
        self.counters.launches += 1
        self.counters.shared_launches += len(group) > 1
        self.counters.decode_s += took
        return ticket, draws

    def _discard(self, ticket: Ticket, group: list[_Turn]) -> None:
        """Forget a launch whose draws did not come; lanes that cannot forget it are rebuilt before they run again."""
        try:
            self.model.discard(ticket)
        except Exception as fault:
            self._log(f"a launch could not be discarded: {fault!r}")
            for turn in group:
                turn.stale = True

    def _retry_alone(self, group: list[_Turn], fault: Exception) -> None:
        """A launch that failed is tried again, each stream alone and without its drafts; one that still fails ends."""
        if isinstance(fault, MemoryError):
            harmless(self.relieve)()
        if len(group) == 1:
            self._retry_serially(group[0], fault)
            return
        self.counters.retries += 1
        if self.counters.retries <= _LOGGED_RETRIES:
            self._log(f"a shared round of {len(group)} streams failed, running each alone: {fault!r}")
        for turn in group:
            self._run([turn])

    def _retry_serially(self, turn: _Turn, fault: Exception) -> None:
        turn.tries += 1
        if turn.tries > _TRIES:
            turn.fault = fault
            return
        turn.window, turn.source = turn.window.truncated(1), None
        self._run([turn])

    def _commit(self, turn: _Turn, drawn: Sequence[int]) -> Path:
        """Apply the acceptance rule to one stream; the rows to keep, none when the stream's own rules raised."""
        stream = turn.live.stream
        try:
            accepted = accept(turn.window, drawn, stream.room, stream.stop_ids)
            turn.committed = stream.commit(turn.window, accepted)
        except Exception as fault:
            turn.fault = fault
            return ()
        own = turn.committed.tokens == accepted.tokens[: len(turn.committed.tokens)]
        turn.live.forced = turn.live.forced or turn.window.forced > 0 or not own
        return turn.committed.kept

    def _remember(self, group: list[_Turn]) -> None:
        """Count the round and tell the draft sources what became of their drafts."""
        for turn in group:
            live, committed = turn.live, turn.committed
            if committed is None:
                continue
            live.rounds += 1
            drafted = len(turn.window.tokens) - 1 - turn.window.forced
            if drafted and turn.source is not None:
                live.count(turn.source, drafted, committed.drafts_kept)
                self.counters.count_drafts(turn.source, drafted, committed.drafts_kept)
            self._drafting.observe(live, turn.source if drafted else None, drafted, committed)

    def _rebuild_or_end(self, turn: _Turn) -> None:
        try:
            self._lanes.rebuild(turn.live)
        except Exception as fault:
            turn.committed, turn.fault = None, fault


def _asked(live: Live, window: Window) -> LaneWindow:
    """A stream's rows as the model takes them; a constrained one's each with the tokens that it may draw."""
    stream = live.stream
    masks = None if stream.constraint is None else stream.constraint.masks(window)
    return LaneWindow(live.lane, stream.absorbed, window, stream.sampling, masks, live.audit)


def _take_prints(group: Sequence[_Turn], draws: Draws, paths: Sequence[Path]) -> None:
    """The digest of the row that drew each committed token."""
    for turn, prints, path in zip(group, draws.prints, paths, strict=True):
        if prints is not None:
            turn.prints = tuple(prints[row] for row in path)
