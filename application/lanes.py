"""The lanes of live streams: opened, filled slice by slice, freed, and made anew with the state a stream had.

Knows no draft and no queue. A prompt is absorbed in the chunks that its length plans, each cut only where the model's
load check allows, so a lane that is made anew gets the very bits it had. A reply is read again row by row, and what its
rows draw is held against it: a stream never goes on from a state that is not its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tensorfold.application.counters import Counters
from tensorfold.application.flight import Flight
from tensorfold.application.live import Live
from tensorfold.application.ports.target_model import Lane, LaneWindow, RoundBatch, Span, TargetModel
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.costs import RATE, STALL, CostCurve
from tensorfold.domain.prompts.chunks import plan_chunks, slices
from tensorfold.domain.streams import Stream
from tensorfold.domain.windows import chain


class ReplayError(Exception):
    """A reply that was read again did not come out as before: its stream must not go on."""


class Lanes:
    """Keeps what a model's lanes hold in step with their streams. Used by the engine thread alone."""

    def __init__(
        self,
        model: TargetModel,
        settings: EngineSettings,
        flight: Flight,
        curve: CostCurve,
        counters: Counters,
        log: Callable[[str], None],
    ) -> None:
        self._model = model
        self._chunk = settings.prefill_chunk
        self._flight = flight
        self._curve = curve
        self._counters = counters
        self._log = log
        self._slice = model.limits.prefill_slice
        self._width = model.limits.chain_width
        self._draft_context = model.limits.draft_context
        self._row_ms = model.costs.prefill_row_ms

    def open(self, stream: Stream) -> Lane:
        """An empty lane with room for a whole stream. Raises CapacityError when none is left."""
        return self._model.open(len(stream.prompt) + stream.max_tokens)

    def slices(self, stream: Stream) -> Iterator[Span]:
        """What a prompt is absorbed in, one call each; its last id is left pending."""
        for chunk in plan_chunks(len(stream.prompt) - 1, self._chunk):
            for start, stop in slices(chunk, self._slice):
                yield Span(start, stop)

    def close(self, live: Live) -> None:
        """Free a stream's lane; a model that will not is told of in the log."""
        try:
            self._model.close(live.lane)
        except Exception as fault:
            self._log(f"lane {live.lane} did not close: {fault!r}")

    def fill(self, live: Live) -> bool:
        """Absorb the next slice of a prompt, or of a reply read again; True when the stream may take rounds.

        Raises ReplayError when a reply's rows do not draw what they drew before.
        """
        if live.filled < len(live.stream.prompt) - 1:
            self._absorb(live, next(live.slices))
        elif live.to_fill > 0:
            self._replay(live)
        if live.to_fill <= 0 and not live.stream.emitted_count:
            live.stream.absorb_prompt()
        return live.to_fill <= 0

    def drop(self, live: Live) -> None:
        """Free a stream's lane, to be made anew by `resume` and `fill`."""
        self.close(live)
        live.dropped, live.filled = True, 0
        live.replay_to = live.stream.absorbed if live.stream.emitted_count else 0

    def resume(self, live: Live) -> None:
        """An empty lane for a stream that gave its own up. Raises CapacityError when none is left."""
        live.lane = self.open(live.stream)
        live.dropped, live.slices = False, self.slices(live.stream)

    def rebuild(self, live: Live) -> None:
        """A fresh lane with the state the stream had, made at once."""
        self._counters.rebuilds += 1
        self.drop(live)
        self.resume(live)
        while not self.fill(live):
            pass

    def _absorb(self, live: Live, span: Span) -> None:
        rows = span.stop - span.start
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

    def _replay(self, live: Live) -> None:
        """Absorb the next committed tokens of a reply, as wide as the model's windows allow."""
        stream, at = live.stream, live.filled
        rows = min(self._width_at(at), live.replay_to - at)
        behind = stream.tokens[at + 1 : at + rows]
        window = chain(stream.tokens[at], forced=behind) if live.forced else chain(stream.tokens[at], behind)
        self._flight.depart("round", self._curve.ms(rows))
        try:
            ticket = self._model.launch(RoundBatch((LaneWindow(live.lane, at, window, stream.sampling),)))
            (drawn,) = self._model.collect(ticket).tokens
            if not live.forced and list(drawn) != stream.tokens[at + 1 : at + rows + 1]:
                self._model.discard(ticket)
                raise ReplayError(f"rows {at} to {at + rows - 1} drew other tokens than before")
            self._model.keep(ticket, [tuple(range(rows))])
        finally:
            self._flight.arrive()
        live.filled = at + rows

    def _width_at(self, position: int) -> int:
        """Rows of a window that keeps its bits there."""
        if not self._draft_context or position + self._width <= self._draft_context:
            return self._width
        return max(1, self._draft_context - position)
