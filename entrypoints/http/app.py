"""Routes and what stands before them, as one WSGI application. It serves before a model is there and says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import falcon

from tensorfold.application.listeners import harmless
from tensorfold.entrypoints.http import error_handlers
from tensorfold.entrypoints.http.access import METRICS_PATHS, Authentication, CrossOrigin, HostCheck, Paths
from tensorfold.entrypoints.http.access_log import AccessLog, AccessLogger
from tensorfold.entrypoints.http.chat_completions import ChatCompletions
from tensorfold.entrypoints.http.completions import Completions
from tensorfold.entrypoints.http.desk import Desk
from tensorfold.entrypoints.http.error_handlers import FaultLog
from tensorfold.entrypoints.http.gate import Gate
from tensorfold.entrypoints.http.health import HealthRoute
from tensorfold.entrypoints.http.keys import KeyRing
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.metrics import MetricsRoute
from tensorfold.entrypoints.http.models import Models
from tensorfold.entrypoints.http.pump import Pump
from tensorfold.entrypoints.http.recall import RecallRoute
from tensorfold.entrypoints.http.services import Services

App = falcon.App[falcon.Request, falcon.Response]


@dataclass(frozen=True, slots=True)
class Exposure:
    """Who may reach the server: the address it is bound to, its keys, and the browser origins it answers.

    `metrics_open` shows metrics without a key.
    """

    host: str
    keys: KeyRing
    origins: Sequence[str] = ()
    metrics_open: bool = False


def create_app(
    services: Services,
    gate: Gate,
    exposure: Exposure,
    limits: HttpLimits,
    *,
    version: str,
    log: AccessLog,
    log_fault: FaultLog,
    pump: Pump | None = None,
    taken: Callable[[Mapping[str, Any]], None] = lambda body: None,
) -> App:
    """The application. `log` is told of every request, `log_fault` of every error that is ours.

    `taken` gets the body of every request that began a reply, but for those in the background.

    Without a `pump` every request's own thread takes its reply's events.
    """
    access = AccessLogger(log)
    before: list[Any] = [
        access,
        Paths(),
        CrossOrigin(exposure.origins),
        HostCheck(exposure.host, exposure.keys),
        Authentication(exposure.keys, METRICS_PATHS if exposure.metrics_open else ()),
    ]
    app: App = falcon.App(middleware=before)
    error_handlers.install(app, log_fault)
    desk = Desk(services, gate, limits, access, log_fault, pump, harmless(taken))
    models = Models(services)
    health = HealthRoute(services, gate, exposure.keys, version)
    recall = RecallRoute(services)
    metrics = MetricsRoute(services, gate, version)
    app.add_route("/", health)
    for prefix in ("", "/v1"):
        app.add_route(f"{prefix}/health", health)
        app.add_route(f"{prefix}/metrics", metrics)
        app.add_route(f"{prefix}/recall", recall)
        app.add_route(f"{prefix}/models", models)
        app.add_route(f"{prefix}/models/{{model_id:path}}", models, suffix="one")
        app.add_route(f"{prefix}/chat/completions", ChatCompletions(desk))
        app.add_route(f"{prefix}/completions", Completions(desk))
    return app
