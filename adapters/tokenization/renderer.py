"""Keeps one renderer process: made when first needed, used by one thread at a time, replaced after it was stopped.

A request that costs the process its life fails alone; the next one gets a fresh process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tensorfold.adapters.tokenization.render_faults import RenderFaultError
from tensorfold.adapters.tokenization.render_limits import RenderLimits
from tensorfold.adapters.tokenization.render_process import RenderProcess


class Renderer:
    """Renders by name from fixed templates. Safe to call from several threads; renderings take turns."""

    def __init__(self, templates: Mapping[str, str], limits: RenderLimits) -> None:
        self._templates = templates
        self._limits = limits
        self._turn = threading.Lock()
        self._process: RenderProcess | None = None
        self._closed = False

    def start(self) -> None:
        """Have a process whose templates compiled. Raises RenderFaultError."""
        with self._turn:
            self._ready()

    def render(self, name: str, variables: Mapping[str, Any]) -> str:
        """The text of one rendering. Raises RenderFaultError."""
        with self._turn:
            try:
                return self._ready().ask({"name": name, "variables": dict(variables)})
            except RenderFaultError as fault:
                if fault.stopping:
                    self._drop()
                if self._closed:
                    raise RenderFaultError("closed") from None
                raise
            except BaseException:
                # Half an exchange must not answer the next request.
                self._drop()
                raise

    def close(self) -> None:
        """End the process, also in the middle of a rendering, which then fails as closed. May be called again."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._turn:
            self._drop()

    def _ready(self) -> RenderProcess:
        if self._closed:
            raise RenderFaultError("closed")
        if self._process is not None and not self._process.alive:
            self._drop()
        if self._process is None:
            self._process = RenderProcess(self._templates, self._limits)
        return self._process

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()
