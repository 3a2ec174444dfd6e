"""The renderer's process: compiles a checkpoint's templates, then renders conversations one after another.

Started with an interpreter that runs nothing of the user's. Before the first hostile byte it gives up files, children,
memory and time beyond its limits; it ends when its pipe closes, and a timer of its own ends it when nobody else can.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from jinja2 import Template
from jinja2.exceptions import SecurityError, TemplateNotFound, TemplateSyntaxError, UndefinedError

from tensorfold.adapters.tokenization.frames import HEADER, body_size, packed, unpacked
from tensorfold.adapters.tokenization.render_limits import RenderLimits
from tensorfold.adapters.tokenization.sandbox import (
    OutputLimitError,
    RefusedByTemplateError,
    chat_environment,
    rendered,
    template_line,
)

PIPE = 0
DETAIL = 1000
GRACE = 1.0
"""Seconds past the limit after which the process ends itself: the server ends it sooner when it is there to."""


def main(limits: RenderLimits) -> None:
    """Say that the process is ready, then serve requests until the pipe closes."""
    renderer = Renderer(limits)
    _warm()
    _confine(limits)
    _write(packed({}))
    while (request := _read(limits.request_bytes)) is not None:
        _allow(limits.seconds)
        reply = renderer.answer(request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write(reply)


class Renderer:
    """Answers requests: `{"templates": {name: source}}` compiles, `{"name", "variables"}` renders."""

    def __init__(self, limits: RenderLimits) -> None:
        self._limits = limits
        self._environment = chat_environment()
        self._templates: dict[str, Template] = {}

    def answer(self, request: bytearray) -> bytes:
        """A packed reply: `{}` for compiled, `{"text"}`, or `{"fault", "line", "detail"}`. Raises nothing."""
        template: Template | None = None
        try:
            message = _message(request)
            if "templates" in message:
                return self._compile(message["templates"])
            template = self._templates[message["name"]]
            return self._render(template, message["variables"])
        except Exception as error:
            return _fault(error, template)

    def _compile(self, sources: Mapping[str, str]) -> bytes:
        self._templates = {name: self._environment.from_string(source) for name, source in sources.items()}
        return packed({})

    def _render(self, template: Template, variables: Mapping[str, Any]) -> bytes:
        reply = packed({"text": rendered(template, variables, self._limits.output_bytes)})
        if len(reply) > self._limits.output_bytes:
            raise OutputLimitError
        return reply


class _NestedError(Exception):
    """The request itself nests too deeply."""


def _message(request: bytearray) -> Any:
    try:
        return unpacked(request)
    except RecursionError:
        raise _NestedError from None


# The first that fits names the fault; the sentences are the server's.
_FAULTS: tuple[tuple[type[BaseException], str], ...] = (
    (RefusedByTemplateError, "refused"),
    (_NestedError, "nested"),
    (OutputLimitError, "output"),
    (MemoryError, "memory"),
    (RecursionError, "depth"),
    (SecurityError, "forbidden"),
    (TemplateNotFound, "include"),
    (UndefinedError, "undefined"),
    (TemplateSyntaxError, "syntax"),
    (SyntaxError, "syntax"),
)


def _fault(error: Exception, template: Template | None) -> bytes:
    kind = next((name for type_, name in _FAULTS if isinstance(error, type_)), "failed")
    line = (error.lineno or 0) if isinstance(error, TemplateSyntaxError) else template_line(template, error)
    detail = str(error)[:DETAIL] if kind == "refused" else ""
    return packed({"fault": kind, "line": line, "detail": detail})


def _warm() -> None:
    """Load now what rendering may load later, when no file can be opened any more."""
    for name in ("jinja2.debug", "pprint", "textwrap"):
        import_module(name)
    source = "{% for x in [1] %}{{ strftime_now('%c') ~ ([x] | tojson(indent=1)) }}{% endfor %}"
    rendered(chat_environment().from_string(source), {}, 1000)


def _confine(limits: RenderLimits) -> None:
    zone = os.environ.get("TZ")
    os.environ.clear()
    if zone is not None:
        os.environ["TZ"] = zone
    with suppress(OSError, ValueError):  # macOS may refuse a bound on the address space
        _lower(resource.RLIMIT_AS, limits.memory_bytes)
    _lower(resource.RLIMIT_NOFILE, 3)
    _lower(resource.RLIMIT_NPROC, 0)
    _lower(resource.RLIMIT_FSIZE, 0)
    _lower(resource.RLIMIT_CORE, 0)


def _lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _allow(seconds: float) -> None:
    """Give one request its time: both clocks end the process by their signal's default, whatever it is doing."""
    signal.setitimer(signal.ITIMER_REAL, seconds + GRACE)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until = math.ceil(time.process_time() + seconds + GRACE)
    resource.setrlimit(resource.RLIMIT_CPU, (until if hard == resource.RLIM_INFINITY else min(until, hard), hard))


def _read(limit: int) -> bytearray | None:
    header = _read_exactly(HEADER.size)
    return None if header is None else _read_exactly(body_size(header, limit))


def _read_exactly(size: int) -> bytearray | None:
    data = bytearray(size)
    view = memoryview(data)
    done = 0
    while done < size:
        piece = os.readv(PIPE, [view[done:]])
        if not piece:
            return None
        done += piece
    return data


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(PIPE, view) :]
