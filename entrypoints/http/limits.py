"""Sizes and times of the HTTP side: threads, bodies, polling, silence and stalled readers."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Defaults suit a server of 8 streams and a queue of 64; `for_load` sizes others.

    A running request holds one thread for its whole life, so `threads` covers every stream, the queue and headroom;
    the last `spare_threads` are never given to a reply, so that health and models always answer. `poll_s` is how often
    a waiting reply looks whether its client is still there. `keepalive_s` of silence bring an SSE comment. Bytes that a
    client leaves unread for `stall_s` end its connection. `body_bytes` bounds a request, also after decompression.
    """

    threads: int = 96
    spare_threads: int = 8
    body_bytes: int = 32 * MIB
    poll_s: float = 0.1
    keepalive_s: float = 10.0
    stall_s: float = 120.0
    connections: int = 1024
    descriptors: int = 4096

    @property
    def replies(self) -> int:
        """Replies that may run or wait at once."""
        return self.threads - self.spare_threads

    @classmethod
    def for_load(cls, parallel: int, queue: int) -> HttpLimits:
        """Limits for `parallel` streams and `queue` waiting requests."""
        threads = max(32, parallel + queue + 16)
        return cls(threads=threads, connections=max(1024, 4 * threads), descriptors=max(4096, 8 * threads))
