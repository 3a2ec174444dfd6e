"""What the engine counts. Each figure has one writer at a time; any thread may read one, each one whole.

`requests` is written by whoever submits, under the queue's lock; all others by the engine thread alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Totals since the server started. Times are seconds.

    `prompt_tokens` counts a whole prompt when it gets a lane, `filled_tokens` rows of prompts as they are absorbed.
    `paused` counts streams that memory made wait, `dropped` those that gave their lanes up, `preempted` those of them
    that gave it up to a request in the foreground.
    """

    requests: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    filled_tokens: int = 0
    rounds: int = 0
    launches: int = 0
    shared_launches: int = 0
    retries: int = 0
    rebuilds: int = 0
    paused: int = 0
    dropped: int = 0
    preempted: int = 0
    proposer_faults: int = 0
    integrity_faults: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    drafted: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)

    def count_drafts(self, source: str, drafted: int, kept: int) -> None:
        """Add one verified window's drafts to its source."""
        self.drafted[source] = self.drafted.get(source, 0) + drafted
        self.kept[source] = self.kept.get(source, 0) + kept

    @property
    def drafted_total(self) -> int:
        """Drafts verified, all sources."""
        return sum(self.drafted.copy().values())

    @property
    def kept_total(self) -> int:
        """Drafts kept, all sources."""
        return sum(self.kept.copy().values())
