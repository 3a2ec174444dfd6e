"""Lines a user reads: prefixed, flushed at once, so that logs show up under service managers."""

from __future__ import annotations

import faulthandler
import sys

from tensorfold.application.generation import Generation
from tensorfold.application.replies import ReplyStats


def say(line: str) -> None:
    """One line of the server's own on stdout."""
    print(f"[tensorfold] {line}", flush=True)


def warn(line: str) -> None:
    """One line on stderr."""
    print(f"[tensorfold] {line}", file=sys.stderr, flush=True)


def dump_stacks(line: str) -> None:
    """A line and every thread's stack on stderr."""
    warn(line)
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)


def reply_line(generation: Generation, stats: ReplyStats | None, reason: str) -> str:
    """What is logged of a finished request: figures only, never text."""
    label = f" key={generation.request.label}" if generation.request.label else ""
    if stats is None:
        return f"request {generation.id} {reason} prompt={len(generation.request.prompt)}{label}"
    return (
        f"request {generation.id} {reason} prompt={stats.prompt_tokens} cached={stats.cached_tokens} "
        f"tokens={stats.completion_tokens} tok/s={stats.tokens_per_second:.1f} ttft={stats.ttft_s:.2f}s "
        f"prefill={stats.prefill_s:.2f}s rounds={stats.rounds} drafts={stats.accepted}/{stats.drafted}{label}"
    )
