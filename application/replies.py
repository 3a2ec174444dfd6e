"""What a running request tells its listener: landed ids, then exactly one end. Plain values, one queue per request."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorfold.domain.conversation.thoughts import ThoughtMarks, ThoughtSplitter
from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.sampling import Sampling


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A validated request over token ids.

    `max_tokens` None means the server's default capped by the room left. `sampling.seed` is already derived.
    `stops` are non-empty byte strings; `ignore_eos` empties the stop-id set; `draft` False is the serial reference.
    `label` names who asked in logs; `background` yields its place in the queue to foreground requests. `stop_ids`
    replaces the model's end tokens and `audit` asks for fingerprints of the rows: both are for proofs. `marks` are
    special ids that are text of this reply, `thoughts` tell its reasoning, which stops do not search, from its answer.
    `param` and `limit_param` name the fields that prompt and reply limit came in.
    Reasoning of `thinking_budget` tokens (0: no limit) is ended with the ids of `thought_close`. `constraint` is the
    reply's grammar at its start.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None = None
    stops: tuple[bytes, ...] = ()
    ignore_eos: bool = False
    draft: bool = True
    background: bool = False
    param: str = "prompt"
    limit_param: str = "max_tokens"
    label: str = ""
    stop_ids: frozenset[int] | None = None
    audit: bool = False
    marks: frozenset[int] = frozenset()
    thoughts: ThoughtMarks | None = None
    in_thought: bool = False
    thinking_budget: int = 0
    thought_close: tuple[int, ...] = ()
    constraint: Constraint | None = None

    def splitter(self) -> ThoughtSplitter | None:
        """What tells thought from answer at the reply's start; None when all of it is answer."""
        return None if self.thoughts is None else ThoughtSplitter(self.thoughts, self.in_thought)


@dataclass(frozen=True, slots=True)
class SourceCount:
    """Drafts of one source that were verified, and how many of them were kept."""

    source: str
    drafted: int
    kept: int


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """Figures of one finished reply. Times are seconds; `first_tokens` landed in the first round."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    ttft_s: float = 0.0
    decode_s: float = 0.0
    rounds: int = 0
    first_tokens: int = 1
    sources: tuple[SourceCount, ...] = field(default=())

    @property
    def drafted(self) -> int:
        """Drafts verified, all sources."""
        return sum(s.drafted for s in self.sources)

    @property
    def accepted(self) -> int:
        """Drafts kept, all sources."""
        return sum(s.kept for s in self.sources)

    @property
    def tokens_per_second(self) -> float:
        """Reply tokens after the first round, per second since it; 0 when there are none."""
        later = self.completion_tokens - self.first_tokens
        return later / self.decode_s if later > 0 and self.decode_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Landed:
    """Token ids that became part of the reply in one round; `prints` are their rows' fingerprints under an audit."""

    ids: tuple[int, ...]
    prints: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The reply is whole. `reason` is `stop` or `length`; `stop` is the stop string that ended it, if one did."""

    reason: str
    stats: ReplyStats
    stop: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The request ended with an error; `message` may be shown to the client."""

    message: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The request was cancelled by its own side."""


Event = Landed | Ended | Failed | Cancelled


def token_sha(ids: Sequence[int]) -> str:
    """First 12 hex digits of SHA-256 over the ids in decimal joined by commas: a reply's fingerprint."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()[:12]
