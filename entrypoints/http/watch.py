"""What a waiting reply looks at between events: its client, the server's end, and the clock.

A reply is pulled in short waits; whoever pulls asks these questions at every wait and at every event.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import falcon

from tensorfold.entrypoints.http.channel import WIRE, Wire
from tensorfold.entrypoints.http.gate import Gate
from tensorfold.entrypoints.http.limits import HttpLimits


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Watch:
    """`gone()` says whether the client has left; cheap enough to ask at every event."""

    gone: Callable[[], bool]
    gate: Gate
    poll_s: float
    keepalive_s: float
    clock: Callable[[], float] = time.monotonic
    wire: Wire | None = None

    @property
    def over(self) -> bool:
        """Whether the client has left or the server's end has come."""
        return self.gone() or self.gate.over


def watch_client(req: falcon.Request, gate: Gate, limits: HttpLimits) -> Watch:
    """A watch over the client of `req`; a server that cannot tell never says that it left."""
    gone = req.env.get("waitress.client_disconnected", _never)
    return Watch(gone, gate, limits.poll_s, limits.keepalive_s, wire=req.env.get(WIRE))
