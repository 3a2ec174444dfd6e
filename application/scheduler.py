"""The one thread that owns the device: admit, gate, fill, round, finish.

Other threads submit and cancel under a lock and read their own queues; they never touch the engine. A request's fault,
cancellation or departure ends that request alone. When the server is idle the engine's books are checked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Literal

from tensorfold.application.admission import AdmissionControl, Refused, Unlimited, Wait
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine, Outcome
from tensorfold.application.errors import OverloadedError
from tensorfold.application.faults import named
from tensorfold.application.generation import Generation, StreamFactory
from tensorfold.application.listeners import harmless
from tensorfold.application.live import Live
from tensorfold.application.memory_figures import MemoryFigures
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.target_model import CapacityError
from tensorfold.application.recording import Recorder
from tensorfold.application.replies import Cancelled, Ended, Failed, GenerationRequest, Landed, ReplyStats
from tensorfold.application.running import Running
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.sources import DraftSource
from tensorfold.domain.gates.constraint import FormError
from tensorfold.domain.memory.gate import Gate, Stake
from tensorfold.domain.scheduling.credit import DecodeCredit
from tensorfold.domain.scheduling.fills import Filling, FillOrder
from tensorfold.domain.scheduling.queue import WaitingQueue
from tensorfold.domain.streams import Stream

Phase = Literal["loading", "ok", "draining", "stopped", "failed"]
_SHUTDOWN = "The server is shutting down."
ENGINE_FAULT = "The request failed inside the engine; the server's log says why. Other requests go on."
OUT_OF_MEMORY = (
    "The request ended because memory could not be had for it. Other requests go on; a lower `--parallel` or a smaller "
    "`--context` at startup leaves each of them more."
)
_NEWEST = 1 << 62
"""The index of a stream that is not opened yet."""


def _failure(fault: Exception | None) -> Failed:
    """What a client is told of a fault; the code of a refusal that only admission could find is one that it knows."""
    if isinstance(fault, CapacityError):
        return Failed(fault.message, "context_length_exceeded")
    if isinstance(fault, FormError):
        return Failed(str(fault))
    return Failed(OUT_OF_MEMORY if isinstance(fault, MemoryError) else ENGINE_FAULT)


class Scheduler:
    """Owns the engine thread from loading the model to freeing it."""

    def __init__(
        self,
        load: Callable[[], tuple[Engine, StreamFactory]],
        settings: EngineSettings,
        clock: Clock,
        *,
        counters: Counters,
        log: Callable[[str], None] = lambda line: None,
        on_done: Callable[[Generation, ReplyStats | None, str], None] = lambda generation, stats, reason: None,
        on_landed: Callable[[float], None] = lambda gap_s: None,
        recorder: Recorder | None = None,
        admission: AdmissionControl | None = None,
    ) -> None:
        self._load = load
        self._admission: AdmissionControl = admission or Unlimited()
        self._settings = settings
        self._clock = clock
        self._log = harmless(log)
        self._on_done = harmless(on_done)
        self._on_landed = harmless(on_landed)
        self._recorder = recorder
        self.counters = counters
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._waiting: WaitingQueue[Generation] = WaitingQueue(settings.queue)
        self._filling: list[Running] = []
        self._running: list[Running] = []
        self._parked: list[Running] = []
        """Streams that gave their lanes up and wait to get one again."""
        self._yielded: list[Running] = []
        """Streams in the background that gave their lanes up to requests in the foreground."""
        self._credit = DecodeCredit(settings.decode_share)
        self._fills = FillOrder(whole=settings.decode_share == 0)
        self._phase: Phase = "loading"
        self._halt = False
        self._checked = False
        self._failure: BaseException | None = None
        self._ready = threading.Event()
        self._engine: Engine | None = None
        self._factory: StreamFactory | None = None
        self._thread = threading.Thread(target=self._main, name="engine", daemon=True)

    # -- what other threads call ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin loading on the engine thread."""
        self._thread.start()

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Whether requests are accepted, waiting at most `timeout` seconds. Raises what loading raised."""
        ready = self._ready.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return ready

    @property
    def phase(self) -> Phase:
        """Where the server stands."""
        return self._phase

    @property
    def engine(self) -> Engine:
        """The loaded engine; read its values only."""
        assert self._engine is not None
        return self._engine

    @property
    def factory(self) -> StreamFactory:
        """What makes streams of requests."""
        assert self._factory is not None
        return self._factory

    @property
    def admission(self) -> AdmissionControl:
        """Who decides by memory."""
        return self._admission

    @property
    def parallel(self) -> int:
        """Streams that may hold lanes at once."""
        return self._settings.parallel

    @property
    def chunk(self) -> int:
        """Positions of a planned chunk of a prompt."""
        return self.engine.prompts.rule.step

    @property
    def decode_share(self) -> float:
        """Part of a prompt slice's time that running replies get before the next slice."""
        return self._settings.decode_share

    def loads(self) -> tuple[int, int, int]:
        """Streams decoding, those that wait for memory among them, prompts filling, requests waiting."""
        waiting = len(self._waiting) + len(self._yielded)
        return len(self._running) + len(self._parked), len(self._filling), waiting

    def memory(self) -> MemoryFigures | None:
        """What memory comes to now; None where nothing is known of it."""
        live = [(running.paused, _stake(running)) for running in self._live()]
        return self._admission.figures([s for paused, s in live if not paused], [s for paused, s in live if paused])

    def paused(self) -> int:
        """Streams that wait for memory, with their lanes or without them."""
        return len(self._parked) + sum(running.paused for running in (*self._filling, *self._running))

    def submit(self, request: GenerationRequest, source: DraftSource | None = None) -> Generation:
        """Queue a request, `source` beside its usual draft sources.

        Raises ContextExceededError or OverloadedError; nothing is left behind when it does.
        """
        self.factory.check(request)
        # Marked before it waits: a record that is emptied meanwhile is not to find its prompt afterwards.
        generation = Generation(request, self._clock.monotonic(), self._notify, source, self._mark())
        with self._wake:
            if self._phase != "ok":
                raise OverloadedError(_SHUTDOWN, retry_after=5)
            if not self._waiting.put(generation.id, generation, background=request.background):
                raise OverloadedError(
                    f"All {self._settings.parallel} lanes (--parallel) are busy and {self._settings.queue} requests "
                    "wait already.",
                    retry_after=5,
                )
            self.counters.requests += 1
            self._wake.notify()
        return generation

    def drain(self) -> None:
        """Take no new requests; those inside go on."""
        with self._wake:
            if self._phase == "ok":
                self._phase = "draining"

    def stop(self, timeout: float) -> bool:
        """End every request, free the model and join the thread; False when it did not end in time."""
        with self._wake:
            if self._phase in ("ok", "loading"):
                self._phase = "draining"
            self._halt = True
            self._wake.notify()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify()

    # -- the engine thread ---------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            self._engine, self._factory = self._load()
            self._engine.relieve = self._admission.release
        except BaseException as failure:
            self._failure, self._phase = failure, "failed"
            self._ready.set()
            return
        with self._wake:
            if self._phase == "loading":
                self._phase = "ok"
        self._ready.set()
        while self._wait_for_work():
            try:
                self._step()
            except Exception as fault:
                # Nothing is known of the streams now: they end, and the server goes on with the next request.
                self._log(f"the engine's loop failed, its streams end: {fault!r}")
                self._end_running(ENGINE_FAULT)
        self._end_all()
        try:
            self.engine.prompts.close()
            self.engine.model.shutdown()
        except Exception as fault:
            self._log(f"the model did not shut down: {fault!r}")
        self._phase = "stopped"

    def _wait_for_work(self) -> bool:
        """Wait until there is work; False when the end was asked for. Idle, the books are checked once."""
        while True:
            with self._wake:
                if self._checked:
                    self.engine.flight.idle()
                while self._checked and not self._called():
                    self._wake.wait()
                if self._called():
                    return not self._halt
            # Without the lock and with a call in flight: a device that hangs here is seen, and nobody hangs with it.
            self.engine.flight.arrive()
            self.check_integrity()
            self._admission.release()
            self._checked = True

    def _called(self) -> bool:
        return bool(self._halt or self._waiting or self._live() or self._yielded)

    def _step(self) -> None:
        """One pass: what left is dropped, what waits is admitted, one slice of a prompt, then the rounds it owes."""
        self._checked = False
        self.engine.flight.arrive()
        self._drop_cancelled()
        self._admit()
        self._gate()
        if filling := self._reading():
            self._fill(filling)
        self._rounds()

    def _reading(self) -> list[Running]:
        """Streams whose prompts may be read on now."""
        return [r for r in self._filling if not r.paused]

    def _rounds(self) -> None:
        """Rounds, for as long as the prompts that are being read owe them; one at least where none is."""
        while running := [r for r in self._running if not r.paused]:
            reading = bool(self._reading())
            if reading and not self._owed(running):
                return
            began = self._clock.monotonic()
            outcomes = self.engine.round([r.live for r in running])
            for outcome in outcomes:
                self._land(outcome)
            if not reading:
                return
            # Only rounds that a prompt waits for are counted: with none being read, replies owe nothing.
            self._credit.round_took(self._clock.monotonic() - began)
            self._drop_cancelled()
            self._gate()

    def _owed(self, running: Sequence[Running]) -> bool:
        """Whether replies may take a round before the next slice; a first token is never kept waiting."""
        if not self._settings.decode_share:
            return False
        return self._credit.owes_rounds() or any(not r.live.rounds for r in running)

    # -- memory --------------------------------------------------------------------------------------------------

    def _live(self) -> list[Running]:
        return [*self._filling, *self._running, *self._parked]

    def _gate(self) -> None:
        """Let memory say who goes on: streams wait with their lanes or without them, come back, or end."""
        everyone = {r.live.index: r for r in self._live()}
        if not everyone:
            return
        decided = self._admission.before_round([_stake(r) for r in everyone.values()])
        for index in decided.end:
            self._run_out(everyone[index])
        for index in decided.drop:
            self._park(everyone[index])
        for index in decided.resume:
            self._unpark(everyone[index])
        self._pause(decided)

    def _pause(self, decided: Gate) -> None:
        for running in (*self._filling, *self._running):
            paused = running.live.index not in decided.run
            self.counters.paused += paused and not running.paused
            running.paused = paused

    def _run_out(self, running: Running) -> None:
        """End a stream that memory cannot carry on, whoever leaves."""
        message = self._admission.ended(_stake(running))
        self._log(f"request {running.generation.id} ended: {message}")
        self._forget(running)
        self._close(running)
        self._fail(running.generation, Failed(message), running.stats(self._clock.monotonic()))

    def _park(self, running: Running) -> None:
        self._forget(running)
        self.engine.drop(running.live)
        self._parked.append(running)

    def _unpark(self, running: Running) -> None:
        try:
            self.engine.resume(running.live)
        except Exception as fault:
            self._log(f"request {running.generation.id} got no lane again: {fault!r}")
            if isinstance(fault, CapacityError) and (self._filling or self._running):
                return
            self._forget(running)
            self._end(running, fault)
            return
        self._forget(running)
        (self._filling if running.live.to_fill > 0 else self._running).append(running)

    def _forget(self, running: Running) -> None:
        for group in (self._filling, self._running, self._parked, self._yielded):
            if running in group:
                group.remove(running)

    # -- admission and filling -----------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Open lanes for waiting requests in the queue's order, until the next one has to wait.

        One in the foreground takes the place of streams in the background, which come back when there is room again.
        """
        while (generation := self._first()) is not None:
            background = generation.request.background
            if background and self._yielded:
                break
            if len(self._live()) < self._settings.parallel and self._open(generation):
                continue
            if background or not self._preempt():
                return
        self._call_back()

    def _first(self) -> Generation | None:
        with self._lock:
            return self._waiting.peek()

    def _preempt(self) -> bool:
        """Let the newest stream in the background give its lane up; False where there is none."""
        behind = [r for r in self._live() if r.generation.request.background]
        if not behind:
            return False
        running = max(behind, key=lambda r: r.live.index)
        if not running.live.dropped:
            # What was read of its prompt is kept: it need not be read again.
            self.engine.drop(running.live, keep=running in self._filling)
        self._forget(running)
        running.paused = False
        self._yielded.append(running)
        self.counters.preempted += 1
        return True

    def _call_back(self) -> None:
        """Lanes for streams that yielded, the oldest first, where there is room."""
        while self._yielded and len(self._live()) < self._settings.parallel:
            running = min(self._yielded, key=lambda r: r.live.index)
            others = [_stake(other) for other in self._live()]
            keep = self.engine.prompts.peek(running.live.stream.prompt)
            verdict = self._admission.admit(_stake(running), others, running.generation.request.param, keep)
            if isinstance(verdict, Wait):
                return
            self._forget(running)
            if isinstance(verdict, Refused):
                self._end(running, CapacityError(verdict.message))
                continue
            self._parked.append(running)
            self._unpark(running)
            if running in self._parked:
                self._parked.remove(running)
                self._yielded.append(running)
                return

    def _open(self, generation: Generation) -> bool:
        """Give the queue's first request a lane; False when it has to wait for one."""
        live, refusal = None, Failed("")
        try:
            stream = self.factory.stream(generation.request)
            others = [_stake(running) for running in self._live()]
            verdict = self._admission.admit(
                _ask(generation, stream), others, generation.request.param, self.engine.prompts.peek(stream.prompt)
            )
            if isinstance(verdict, Wait):
                return False
            if isinstance(verdict, Refused):
                raise CapacityError(verdict.message)
            stream.max_tokens = verdict.reply
            live = self.engine.open(stream, generation.source, background=generation.request.background)
        except CapacityError as limit:
            if self._live():
                return False
            refusal = _failure(limit)
        except Exception as fault:
            self._log(f"request {generation.id} could not be opened: {fault!r}")
            refusal = self._relieved(fault)
        with self._lock:
            self._waiting.remove(generation.id)
        if live is None:
            self._fail(generation, refusal, None)
        else:
            self._start(generation, live)
        return True

    def _start(self, generation: Generation, live: Live) -> None:
        request = generation.request
        live.audit = request.audit
        self.counters.prompt_tokens += len(request.prompt)
        self.counters.cached_tokens += live.cached
        running = Running(generation, live, self._clock.monotonic())
        (self._filling if live.to_fill > 0 else self._running).append(running)

    def _fill(self, filling: Sequence[Running]) -> None:
        """Absorb one slice of the prompt whose turn it is."""
        running = self._next(filling)
        cached = running.live.cached
        began = self._clock.monotonic()
        try:
            filled = self.engine.fill(running.live)
        except Exception as fault:
            self._log(f"request {running.generation.id} failed while its prompt was read: {fault!r}")
            self._filling.remove(running)
            self._end(running, fault)
            return
        now = self._clock.monotonic()
        self._credit.slice_took(now - began)
        self.counters.cached_tokens += running.live.cached - cached
        if not running.first_at:
            running.filled_at = now
        if filled:
            self._filling.remove(running)
            self._running.append(running)

    def _next(self, filling: Sequence[Running]) -> Running:
        ready = [r for r in filling if not self.engine.waits(r.live)] or filling
        known = {r.live.index: r for r in ready}
        prompts = [Filling(i, r.live.to_fill, r.generation.request.background) for i, r in known.items()]
        return known[self._fills.take(prompts)]

    # -- landing and ending --------------------------------------------------------------------------------------

    def _land(self, outcome: Outcome) -> None:
        live, committed = outcome.live, outcome.committed
        running = next(r for r in self._running if r.live is live)
        generation = running.generation
        if committed is None:
            self._log(f"request {generation.id} failed in a round: {outcome.fault!r}")
            self._running.remove(running)
            self._end(running, outcome.fault)
            return
        self.counters.completion_tokens += len(committed.tokens)
        generation.deliver(Landed(committed.tokens, outcome.prints))
        now = self._clock.monotonic()
        if live.rounds == 1:
            running.first_at, running.first_tokens = now, len(committed.tokens)
        else:
            self._on_landed(now - running.landed_at)
        running.landed_at = now
        if committed.finish is not None:
            self._running.remove(running)
            stats = running.stats(self._clock.monotonic())
            self._close(running)
            self.counters.finished += 1
            self._on_done(generation, stats, str(committed.finish))
            generation.deliver(Ended(str(committed.finish), stats, committed.stop))

    def _drop_cancelled(self) -> None:
        for group in (self._filling, self._running, self._parked, self._yielded):
            for running in [r for r in group if r.generation.cancelled]:
                group.remove(running)
                self._close(running, keep=group is self._filling)
                self._finish_cancelled(running.generation, running.stats(self._clock.monotonic()))
        if self._waiting:
            with self._lock:
                gone = [g for g in self._waiting if g.cancelled]
                for generation in gone:
                    self._waiting.remove(generation.id)
            for generation in gone:
                self._finish_cancelled(generation, None)

    def _finish_cancelled(self, generation: Generation, stats: ReplyStats | None) -> None:
        self.counters.cancelled += 1
        self._on_done(generation, stats, "cancelled")
        generation.deliver(Cancelled())

    def _end(self, running: Running, fault: Exception | None) -> None:
        self._close(running)
        self._fail(running.generation, self._relieved(fault), running.stats(self._clock.monotonic()))

    def _relieved(self, fault: Exception | None) -> Failed:
        """What a client is told of a fault; where memory could not be had, freed buffers are handed back first."""
        if isinstance(fault, MemoryError):
            self._admission.release()
        return _failure(fault)

    def _fail(self, generation: Generation, failed: Failed, stats: ReplyStats | None) -> None:
        self.counters.failed += 1
        self._on_done(generation, stats, "error")
        generation.deliver(failed)

    def _end_all(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
            for generation in waiting:
                self._waiting.remove(generation.id)
        self._end_running(_SHUTDOWN)
        for generation in waiting:
            self._fail(generation, Failed(_SHUTDOWN), None)

    def _end_running(self, message: str) -> None:
        ending = [*self._live(), *self._yielded]
        self._filling, self._running, self._parked, self._yielded = [], [], [], []
        for running in ending:
            self._close(running)
            self._fail(running.generation, Failed(message), running.stats(self._clock.monotonic()))

    # -- the record ----------------------------------------------------------------------------------------------

    def _mark(self) -> int:
        try:
            return self._recorder.began() if self._recorder is not None else 0
        except Exception as fault:
            self._log(f"the record gave no mark: {named(fault)}")
            return -1

    def _close(self, running: Running, *, keep: bool = False) -> None:
        """Free a stream's lane; what it read and wrote goes to the record, if it wrote anything.

        With `keep`, what was read of its prompt is kept.
        """
        self.engine.close(running.live, keep=keep)
        stream = running.live.stream
        if self._recorder is None or not stream.emitted_count:
            return
        try:
            self._recorder.record(stream.tokens, running.live.cached, running.generation.mark)
        except Exception as fault:
            self._log(f"request {running.generation.id} was not recorded: {named(fault)}")

    # -- integrity -----------------------------------------------------------------------------------------------

    def check_integrity(self) -> Sequence[str]:
        """When nothing runs, nothing may be held: stray lanes are named, closed and counted."""
        faults = []
        try:
            kept = self.engine.prompts.lanes()
            lanes = () if self._live() else [lane for lane in self.engine.model.lanes() if lane not in kept]
        except Exception as fault:
            lanes = ()
            faults.append(f"the model cannot name its lanes: {fault!r}")
        for lane in lanes:
            faults.append(f"lane {lane} is open though no stream holds it")
            try:
                self.engine.model.close(lane)
            except Exception as fault:
                self._log(f"stray lane {lane} did not close: {fault!r}")
        for line in faults:
            self._log(f"integrity: {line}")
        self.counters.integrity_faults += len(faults)
        return faults


def _stake(running: Running) -> Stake:
    """What a stream that was admitted holds and may come to hold."""
    live, stream = running.live, running.live.stream
    whole = running.generation.request.max_tokens is not None
    prompt = len(stream.prompt)
    return Stake(
        live.index,
        live.held,
        prompt,
        prompt + stream.max_tokens,
        whole,
        lane=not live.dropped,
        behind=live.behind,
        spare=live.spare,
    )


def _ask(generation: Generation, stream: Stream) -> Stake:
    """What a request that waits asks for."""
    prompt = len(stream.prompt)
    return Stake(_NEWEST, 0, prompt, prompt + stream.max_tokens, generation.request.max_tokens is not None)
