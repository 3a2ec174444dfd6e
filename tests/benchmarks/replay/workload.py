"""What a workload is: requests read and written before, and the streams to replay, as ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LEAD = 64


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and the reply the model gives to it, its last id the one that ends it.

    `resumed` counts the ids of the prompt that an earlier request has read.
    """

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    resumed: int = 0

    @property
    def run(self) -> tuple[int, ...]:
        """What a server hands to its record when the reply ends."""
        return (*self.prompt[max(0, self.resumed - LEAD) :], *self.reply)


@dataclass(frozen=True, slots=True)
class Workload:
    """`before` was recorded when the first of `streams` begins; each stream is recorded when it ends.

    `foreign` runs lie in the record too, whoever wrote them: no stream of this server read or wrote them. `warming`
    streams are replayed first and not counted.
    """

    name: str
    about: str
    before: tuple[Request, ...]
    streams: tuple[Request, ...]
    foreign: tuple[tuple[int, ...], ...] = ()
    warming: tuple[Request, ...] = ()

    @property
    def reply_ids(self) -> int:
        """Ids of all replies."""
        return sum(len(stream.reply) for stream in self.streams)


def shared(before: Sequence[int], now: Sequence[int]) -> int:
    """How many ids two prompts share from the first."""
    return next((i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now)))
