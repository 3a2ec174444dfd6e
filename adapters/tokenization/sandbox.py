"""The Jinja environment in which a checkpoint's template runs. Imported only by the renderer's process.

Has what chat templates expect of their host: `raise_exception`, `strftime_now`, a `tojson` that writes plain JSON, the
loop controls, and `generation` blocks (which mark a trainer's targets and render as their body). Has no way to another
template, to a file, or to an attribute that the sandbox holds unsafe.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import DictLoader, Template, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment


class RefusedByTemplateError(Exception):
    """The template called `raise_exception`; the argument is its message."""


class OutputLimitError(Exception):
    """The template's output passed its limit."""


class SealedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox for immutable values, where touching an unsafe attribute ends the rendering at once."""

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Refuse instead of handing out an undefined value that prints as nothing."""
        raise SecurityError("unsafe attribute")


class _GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` as its body."""

    tags = {"generation"}  # noqa: RUF012 - the name and form that Jinja reads

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def chat_environment() -> SealedEnvironment:
    """A fresh environment."""
    environment = SealedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, _GenerationBlock],
        loader=DictLoader({}),
        cache_size=0,
    )
    environment.filters["tojson"] = _tojson
    del environment.globals["lipsum"]
    return environment


def rendered(template: Template, variables: Mapping[str, Any], limit: int) -> str:
    """The template's output. Raises OutputLimitError past `limit` characters, and whatever the template raises."""
    context = template.new_context(
        {**variables, "raise_exception": _raise_exception, "strftime_now": _strftime_now},
    )
    pieces: list[str] = []
    size = 0
    for piece in template.root_render_func(context):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise OutputLimitError
    return "".join(pieces)


def template_line(template: Template | None, error: BaseException) -> int:
    """The innermost line of the template that an error passed through; 0 when it passed through none."""
    line = 0
    if template is None:
        return line
    compiled = template.root_render_func.__globals__
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals is compiled:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: Any = "") -> NoReturn:
    raise RefusedByTemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
