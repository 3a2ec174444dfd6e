"""The lanes of live streams: opened, filled slice by slice, freed, and made anew with the state a stream had.

Knows no draft and no queue. A prompt is absorbed in the chunks that its ids plan, each cut only where the model's load
check allows, and may begin with a kept state of the same plan, so a lane that is made anew gets the very bits it had. A
reply is read again row by row, and what its rows draw is held against it: a stream never goes on from a state that is
not its own.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorfold.application.counters import Counters
from tensorfold.application.flight import Flight
from tensorfold.application.live import Live
from tensorfold.application.ports.target_model import Lane, LaneWindow, RoundBatch, Span, TargetModel
from tensorfold.application.prompt_cache import PromptCache, PromptFill
from tensorfold.domain.drafting.costs import RATE, STALL, CostCurve
from tensorfold.domain.streams import Stream
from tensorfold.domain.windows import chain


class ReplayError(Exception):
    """A reply that was read again did not come out as before: its stream must not go on."""


class Lanes:
    """Keeps what a model's lanes hold in step with their streams. Used by the engine thread alone."""

    def __init__(
        self,
        model: TargetModel,
        prompts: PromptCache,
        flight: Flight,
        curve: CostCurve,
        counters: Counters,
        log: Callable[[str], None],
    ) -> None:
        self.prompts = prompts
        self._model = model
        self._flight = flight
        self._curve = curve
        self._counters = counters
        self._log = log
        self._width = model.limits.chain_width
        self._draft_context = model.limits.draft_context
        self._row_ms = model.costs.prefill_row_ms

    def open(self, stream: Stream, *, background: bool = False) -> tuple[Lane, PromptFill]:
        """A lane with room for a whole stream, and what is left to read into it.

        Raises CapacityError when none is left.
        """
        fill = self.prompts.begin(stream.prompt, background=background)
        return self.prompts.open(fill, _capacity(stream)), fill

    def close(self, live: Live, *, keep: bool = False) -> None:
        """Free a stream's lane; a model that will not is told of in the log.

        With `keep` what was read of its prompt is kept, where another may resume from it.
        """
        self.prompts.leave(live.fill, live.lane if keep else None)
        self._release(live)

    def _release(self, live: Live) -> None:
        self.prompts.closed(live.fill)
        try:
            self._model.close(live.lane)
        except Exception as fault:
            self._log(f"lane {live.lane} did not close: {fault!r}")

    def fill(self, live: Live) -> bool:
        """Absorb the next slice of a prompt, or of a reply read again; True when the stream may take rounds.

        Raises ReplayError when a reply's rows do not draw what they drew before.
        """
        if live.filled < len(live.stream.prompt) - 1:
            self._read(live)
        elif live.to_fill > 0:
            self._replay(live)
        if live.to_fill <= 0 and not live.stream.emitted_count:
            live.stream.absorb_prompt()
        return live.to_fill <= 0

    def _read(self, live: Live) -> None:
        """Absorb the next slice of a prompt, behind what another prompt has read of it meanwhile."""
        if self.prompts.catch_up(live.fill):
            self._release(live)
            live.lane = self.prompts.open(live.fill, _capacity(live.stream))
            live.take(live.fill)
            live.cached = live.fill.resumed
            if live.filled >= len(live.stream.prompt) - 1:
                self.prompts.leave(live.fill)
                return
        self._absorb(live, next(live.slices))

    def drop(self, live: Live, *, keep: bool = False) -> None:
        """Free a stream's lane, to be made anew by `resume` and `fill`."""
        self.close(live, keep=keep)
        live.dropped, live.filled, live.again = True, 0, live.began
        live.replay_to = live.stream.absorbed if live.stream.emitted_count else 0

    def resume(self, live: Live) -> None:
        """A lane for a stream that gave its own up, with what is kept of its prompt.

        Raises CapacityError when none is left.
        """
        live.lane, fill = self.open(live.stream, background=live.fill.background)
        live.dropped = False
        live.take(fill)
        if live.filled >= len(live.stream.prompt) - 1:
            # Another prompt may have kept all of this one while it had no lane: then nothing is left to read of it.
            self.prompts.leave(fill)
            if not live.stream.emitted_count:
                live.stream.absorb_prompt()

    def rebuild(self, live: Live) -> None:
        """A fresh lane with the state the stream had, made at once."""
        self._counters.rebuilds += 1
        self.drop(live)
        self.resume(live)
        while not self.fill(live):
            pass

    def _absorb(self, live: Live, span: Span) -> None:
        rows = span.stop - span.start
        live.reach = max(live.reach, span.stop)
        expected = self._row_ms
        began = self._flight.depart("prefill", rows * expected)
        try:
            self._model.collect(self._model.prefill(live.lane, live.ids, span))
        finally:
            took = self._flight.arrive() - began
        # One slice that hung must not hide the next one: it counts as at most so many times what was expected.
        self._row_ms += RATE * (min(1000.0 * took / rows, STALL * expected) - expected)
        self._counters.prefill_s += took
        self._counters.filled_tokens += rows
        live.filled = span.stop
        self.prompts.passed(live.fill, live.lane, span.stop, took)

    def _replay(self, live: Live) -> None:
        """Absorb the next committed tokens of a reply, as wide as the model's windows allow."""
        stream, at = live.stream, live.filled
        rows = min(self._width_at(at), live.replay_to - at)
        behind = stream.tokens[at + 1 : at + rows]
        window = chain(stream.tokens[at], forced=behind) if live.forced else chain(stream.tokens[at], behind)
        masks = None if live.forced or live.again is None else live.again.masks(window)
        live.reach = max(live.reach, at + rows)
        self._flight.depart("round", self._curve.ms(rows))
        try:
            ticket = self._model.launch(RoundBatch((LaneWindow(live.lane, at, window, stream.sampling, masks),)))
            (drawn,) = self._model.collect(ticket).tokens
            if not live.forced and list(drawn) != stream.tokens[at + 1 : at + rows + 1]:
                self._model.discard(ticket)
                raise ReplayError(f"rows {at} to {at + rows - 1} drew other tokens than before")
            self._model.keep(ticket, [tuple(range(rows))])
        finally:
            self._flight.arrive()
        live.filled = at + rows
        if masks is not None and live.again is not None:
            live.again = live.again.advanced(stream.tokens[at + 1 : at + rows + 1])

    def _width_at(self, position: int) -> int:
        """Rows of a window that keeps its bits there."""
        if not self._draft_context or position + self._width <= self._draft_context:
            return self._width
        return max(1, self._draft_context - position)


def _capacity(stream: Stream) -> int:
    return len(stream.prompt) + stream.max_tokens
