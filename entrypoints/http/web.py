"""The WSGI server: waitress with the settings a token server needs, its loop in a thread of our own.

Knows no route. Nothing of a request or a reply spills to disk; a client that leaves is seen while its request runs.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import waitress.server
from waitress import wasyncore

from tensorfold.entrypoints.http.channel import Channel
from tensorfold.entrypoints.http.limits import MIB, HttpLimits
from tensorfold.entrypoints.http.stalled import StalledReaders

LOOK_S = 1.0
FLUSH_S = 1.0


class WebServer:
    """Serves a WSGI application on bound sockets until it is stopped."""

    def __init__(
        self,
        application: Any,
        sockets: list[socket.socket],
        limits: HttpLimits,
        on_fault: Callable[[str, BaseException], None],
    ) -> None:
        # A connection that waits for a thread is no event: the gate bounds and refuses what is too much.
        logging.getLogger("waitress.queue").setLevel(logging.CRITICAL)
        self._on_fault = on_fault
        self._map: dict[int, Any] = {}
        self._server: Any = waitress.server.create_server(
            application, map=self._map, sockets=sockets, **adjustments(limits)
        )
        self._server.adj.socket_options = socket_options(limits.stall_s)
        self._listeners = [item for item in self._map.values() if isinstance(item, waitress.server.BaseWSGIServer)]
        for listener in self._listeners:
            listener.channel_class = Channel
        self._stalled = StalledReaders(limits.stall_s)
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="http", daemon=True)

    def start(self) -> None:
        """Begin to accept connections."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Let the last bytes leave for a moment, then close everything. Replies must have ended before.

        A second call does nothing.
        """
        if self._stopping:
            return
        deadline = time.monotonic() + FLUSH_S
        while self._busy() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._stopping = True
        if self._thread.ident is not None:
            self._listeners[0].pull_trigger()
            self._thread.join()
        for item in list(self._map.values()):
            if isinstance(item, Channel):
                item.handle_close()
        self._server.task_dispatcher.shutdown(cancel_pending=True, timeout=timeout_s)
        wasyncore.close_all(self._map, ignore_all=True)

    @property
    def connections(self) -> int:
        """Open connections of clients."""
        return len(self._channels())

    def _busy(self) -> bool:
        """Whether a thread still writes an answer, or bytes of one wait."""
        dispatcher = self._server.task_dispatcher
        writing = bool(dispatcher.active_count > 0 or dispatcher.queue)
        return writing or any(channel.total_outbufs_len for channel in self._channels())

    def _channels(self) -> list[Channel]:
        return [item for item in list(self._map.values()) if isinstance(item, Channel)]

    def _main(self) -> None:
        next_look = time.monotonic() + LOOK_S
        while not self._stopping:
            try:
                wasyncore.loop(timeout=LOOK_S, use_poll=True, map=self._map, count=1)
                now = time.monotonic()
                if now >= next_look:
                    self._stalled.drop(self._channels(), now)
                    next_look = now + LOOK_S
            except Exception as broken:
                self._on_fault("the connection loop", broken)
                time.sleep(0.05)


def adjustments(limits: HttpLimits) -> dict[str, Any]:
    """Waitress's settings, with the reason for each that is not a mere size."""
    return {
        "threads": limits.threads,
        # Reading on while a request runs is what shows that its client has closed the connection.
        "channel_request_lookahead": 1,
        "asyncore_use_poll": True,
        "connection_limit": limits.connections,
        "backlog": 1024,
        # Prompts and replies must not touch the disk: overflow files begin above anything that fits.
        "inbuf_overflow": 2 * limits.body_bytes,
        "outbuf_overflow": 2 * limits.body_bytes,
        # A client that does not read parks its own thread once this much waits for it.
        "outbuf_high_watermark": MIB,
        # The routes refuse larger bodies in their own words; this bound is for what lies far beyond.
        "max_request_body_size": 2 * limits.body_bytes,
        "channel_timeout": 120,
        "cleanup_interval": 30,
        "ident": None,
        "log_socket_errors": False,
        "expose_tracebacks": False,
        "clear_untrusted_proxy_headers": True,
    }


def socket_options(stall_s: float) -> list[tuple[int, int, int]]:
    """Options of accepted connections: no delay, and the kernel's own notice of peers that vanished."""
    options = [(socket.SOL_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    wanted = {
        "TCP_KEEPIDLE": 60,
        "TCP_KEEPINTVL": 15,
        "TCP_KEEPCNT": 4,
        # Milliseconds that sent bytes may stay unacknowledged, or unsent before a closed window.
        "TCP_USER_TIMEOUT": int(stall_s * 1000),
    }
    for name, value in wanted.items():
        option = getattr(socket, name, None)
        if option is not None:
            options.append((socket.IPPROTO_TCP, option, value))
    return options
