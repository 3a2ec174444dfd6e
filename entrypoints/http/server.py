"""The HTTP server as one object: it binds at once, answers while the model loads, serves, drains and stops.

Order of a life: construct (binds), `start`, `keep` with a record, `ready`, `drain` at the first signal, `hurry` at the
second, `stop`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from tensorfold.application.listeners import harmless
from tensorfold.application.settings import HttpSettings
from tensorfold.entrypoints.http.access import is_loopback
from tensorfold.entrypoints.http.access_log import AccessLog
from tensorfold.entrypoints.http.app import Exposure, create_app
from tensorfold.entrypoints.http.descriptors import raise_descriptor_limit
from tensorfold.entrypoints.http.error_handlers import FaultLog
from tensorfold.entrypoints.http.gate import Gate
from tensorfold.entrypoints.http.keys import KeyRing
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.listening import open_sockets, place
from tensorfold.entrypoints.http.pump import Pump
from tensorfold.entrypoints.http.services import ChatService, HealthService, MeasureService, RecallService, Services
from tensorfold.entrypoints.http.web import WebServer

SWITCH_INTERVAL_S = 0.0005
SETTLE_S = 1.0


class HttpServer:
    """Serves one model. Raises ListenError when the address cannot be listened on, before anything is loaded.

    A log that cannot be written loses its lines and costs no request anything. `recall`: a record will be shown.
    `taken` gets the bodies of requests that began a reply.
    """

    def __init__(
        self,
        settings: HttpSettings,
        limits: HttpLimits,
        *,
        version: str,
        recall: bool = False,
        log: AccessLog = lambda record: None,
        log_fault: FaultLog = lambda where, broken: None,
        taken: Callable[[Mapping[str, Any]], None] = lambda body: None,
    ) -> None:
        log, log_fault = harmless(log), harmless(log_fault)
        sockets = open_sockets(settings.host, settings.port)
        raise_descriptor_limit(limits.descriptors)
        self.host = settings.host
        self.port = int(sockets[0].getsockname()[1])
        self.gate = Gate(limits.replies)
        self._grace_s = settings.drain_grace_s
        self._services = Services(version, recall=recall)
        self.keys = KeyRing(settings.keys, required=settings.needs_key)
        exposure = Exposure(settings.host, self.keys, settings.origins, settings.metrics_open)
        self._pump = Pump()
        app = create_app(
            self._services,
            self.gate,
            exposure,
            limits,
            version=version,
            log=log,
            log_fault=log_fault,
            pump=self._pump,
            taken=taken,
        )
        self._web = WebServer(app, sockets, limits, log_fault)

    @property
    def url(self) -> str:
        """The address clients are given, with `/v1`."""
        host = "127.0.0.1" if self.host in ("", "*", "0.0.0.0", "localhost") else self.host
        host = "::1" if host == "::" else host
        return f"http://{place(host, self.port)}/v1"

    @property
    def connections(self) -> int:
        """Open connections of clients."""
        return self._web.connections

    def start(self) -> None:
        """Answer from now on; requests get 503 until `ready`.

        Threads that only wait must not hold up the one that runs the model: the interpreter's switch interval is cut.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._pump.start()
        self._web.start()

    def keep(self, recall: RecallService) -> None:
        """Show the record from now on, also while the model still loads."""
        self._services.install_recall(recall)

    def ready(
        self, chat: ChatService, health: HealthService, engine: str, measures: MeasureService | None = None
    ) -> None:
        """Serve requests from now on. `engine` names the backend in replies; `measures` are what metrics show."""
        self._services.install(chat, health, engine, measures)

    def drain(self, grace_s: float | None = None) -> None:
        """Take no new requests; the running ones may go on for the grace, then end with an error event."""
        self.gate.drain(self._grace_s if grace_s is None else grace_s)

    def hurry(self) -> None:
        """End the running requests now."""
        self.gate.drain(0.0)

    def stop(self, grace_s: float | None = None) -> None:
        """Drain, wait for the replies to end and close every connection. Blocks for the grace at most, and a little."""
        grace = self._grace_s if grace_s is None else grace_s
        self.drain(grace)
        self.gate.wait_empty(grace + SETTLE_S)
        self._web.stop(SETTLE_S)
        self._pump.stop()


def exposure_warning(settings: HttpSettings) -> str | None:
    """One line for a server that others, or the web pages one opens, can use without a key."""
    if settings.needs_key:
        return None
    if not is_loopback(settings.host):
        return f"Anyone who reaches {settings.host} can use this server: it has no API key; set one with --api-key."
    if "*" in settings.origins:
        return "Any web page you open can use this server: it has no API key and --cors is *; name origins."
    return None
