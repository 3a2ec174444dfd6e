"""`/v1/models`: the served name and its aliases."""

from __future__ import annotations

import json
import time
from typing import Any

import falcon

from tensorfold.entrypoints.http.error_handlers import shown
from tensorfold.entrypoints.http.errors import INVALID, ApiError
from tensorfold.entrypoints.http.services import Services


class Models:
    """The list, and one entry by its id; an id may hold slashes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._created = int(time.time())

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """The list, served name first."""
        data = [self._entry(name) for name in self._services.facts.names]
        resp.data = json.dumps({"object": "list", "data": data}).encode()

    def on_head(self, req: falcon.Request, resp: falcon.Response) -> None:
        """As GET, without the body."""
        self.on_get(req, resp)

    def on_get_one(self, req: falcon.Request, resp: falcon.Response, model_id: str) -> None:
        """One entry. Raises ApiError (404) for a name that is not served."""
        names = self._services.facts.names
        if model_id not in names:
            message = f"The model {shown(model_id)} is not served here; ask for {' or '.join(names)}."
            raise ApiError(404, message, INVALID, "model", "model_not_found")
        resp.data = json.dumps(self._entry(model_id)).encode()

    def on_head_one(self, req: falcon.Request, resp: falcon.Response, model_id: str) -> None:
        """As GET, without the body."""
        self.on_get_one(req, resp, model_id)

    def _entry(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "tensorfold",
            "max_model_len": self._services.chat.context,
        }
