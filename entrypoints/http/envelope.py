"""What every answer about a reply carries besides its text: identity, usage and the `tensorfold` block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.application.text_replies import ReplyDone
from tensorfold.entrypoints.http.services import Reply


@dataclass(frozen=True, slots=True)
class Envelope:
    """The keys that are the same in every chunk of a reply."""

    id: str
    object: str
    created: int
    model: str
    fingerprint: str

    def head(self) -> dict[str, Any]:
        """The keys in the order clients are used to."""
        return {
            "id": self.id,
            "object": self.object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def usage(prompt: int, completion: int, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """OpenAI's usage object. All counts are tokens; `completion` counts every decoded one, the end token included."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def final_usage(done: ReplyDone) -> dict[str, Any]:
    """The usage of a whole reply."""
    stats = done.stats
    return usage(stats.prompt_tokens, stats.completion_tokens, stats.cached_tokens, done.reasoning_tokens)


def figures(reply: Reply, done: ReplyDone, engine: str, token_ids: Sequence[int] | None) -> dict[str, Any]:
    """The `tensorfold` block: the reply's fingerprint, its times in seconds and what its drafts came to."""
    stats = done.stats
    block: dict[str, Any] = {
        "token_sha": done.token_sha,
        "queue_s": round(stats.queue_s, 6),
        "prefill_s": round(stats.prefill_s, 6),
        "ttft_s": round(stats.ttft_s, 6),
        "decode_s": round(stats.decode_s, 6),
        "tokens_per_second": round(stats.tokens_per_second, 3),
        "rounds": stats.rounds,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "cached": stats.cached_tokens,
        "drafts": reply.drafts,
        "sampling": "greedy" if reply.greedy else "exact",
        "engine": engine,
    }
    if token_ids is not None:
        block["token_ids"] = list(token_ids)
    return block
