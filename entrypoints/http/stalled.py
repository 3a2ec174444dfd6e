"""Ends connections whose client has stopped reading, so that neither a thread nor a buffer waits for it forever.

Looks only at connections and the clock: bytes that wait and a connection that took none of them for too long.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold.entrypoints.http.channel import Channel


class StalledReaders:
    """Remembers since when each connection has taken no byte. Called by the thread that owns the connections."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: dict[Channel, tuple[float, float]] = {}

    def drop(self, channels: Iterable[Channel], now: float) -> int:
        """Close what has stood still for the limit; returns how many were closed. `now` is in seconds."""
        since: dict[Channel, tuple[float, float]] = {}
        dropped = 0
        for channel in channels:
            if not channel.total_outbufs_len:
                continue
            activity, seen = self._since.get(channel, (channel.last_activity, now))
            if activity != channel.last_activity:
                activity, seen = channel.last_activity, now
            if now - seen >= self._limit_s:
                channel.handle_close()
                dropped += 1
            else:
                since[channel] = (activity, seen)
        self._since = since
        return dropped
