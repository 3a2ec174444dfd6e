"""`/health`: open to everybody; with API keys it says no more than the status word."""

from __future__ import annotations

import json
from typing import Any

import falcon

from tensorfold.entrypoints.http.gate import Gate
from tensorfold.entrypoints.http.keys import KeyRing
from tensorfold.entrypoints.http.services import Services


class HealthRoute:
    """200 while requests are served well, else 503: loading, draining, stuck or failed."""

    def __init__(self, services: Services, gate: Gate, keys: KeyRing, version: str) -> None:
        self._services = services
        self._gate = gate
        self._closed = keys.required
        self._version = version

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Status, and figures when the server is open."""
        status, ok, figures = self._report()
        resp.status = falcon.HTTP_200 if ok else falcon.HTTP_503
        resp.set_header("Cache-Control", "no-store")
        resp.data = json.dumps({"status": status} if self._closed else {"status": status} | figures).encode()

    def on_head(self, req: falcon.Request, resp: falcon.Response) -> None:
        """As GET, without the body."""
        self.on_get(req, resp)

    def _report(self) -> tuple[str, bool, dict[str, Any]]:
        health = self._services.health
        if health is None:
            return "loading", False, {"version": self._version}
        facts = self._services.facts
        report = health.report()
        figures = {
            "model": facts.names[0],
            "model_ids": list(facts.names),
            "version": self._version,
            "backend": facts.engine,
            "context_length": self._services.chat.context,
            **report.figures,
            "client_disconnections_total": self._gate.disconnections,
        }
        if self._gate.draining:
            return "draining", False, figures
        return report.status, report.ok, figures
