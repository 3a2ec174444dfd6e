"""A request that holds a lane, and the times from which its reply's figures are made. Owned by the engine thread."""

from __future__ import annotations

from tensorfold.application.generation import Generation
from tensorfold.application.live import Live
from tensorfold.application.replies import ReplyStats, SourceCount


class Running:
    """A generation with its stream in the engine; times are monotonic seconds, `first_at` and `landed_at` 0 before the
    first token. `first_tokens` landed in the first round. `paused` while memory makes it wait with its lane.
    """

    __slots__ = ("filled_at", "first_at", "first_tokens", "generation", "landed_at", "live", "opened_at", "paused")

    def __init__(self, generation: Generation, live: Live, opened_at: float) -> None:
        self.generation = generation
        self.live = live
        self.opened_at = opened_at
        self.filled_at = opened_at
        self.first_at = 0.0
        self.first_tokens = 1
        self.landed_at = 0.0
        self.paused = False

    def stats(self, now: float) -> ReplyStats:
        """The reply's figures if it ends at `now`."""
        live, submitted = self.live, self.generation.submitted
        first = self.first_at or now
        return ReplyStats(
            prompt_tokens=len(live.stream.prompt),
            completion_tokens=live.stream.emitted_count,
            cached_tokens=live.cached,
            queue_s=self.opened_at - submitted,
            prefill_s=self.filled_at - self.opened_at,
            ttft_s=first - submitted,
            decode_s=now - first,
            rounds=live.rounds,
            first_tokens=self.first_tokens,
            sources=tuple(SourceCount(name, drafted, kept) for name, (drafted, kept) in live.drafts.items()),
        )
