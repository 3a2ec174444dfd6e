"""How families write tool calls: one file each, and `call_dialect` to find one by its name."""

from __future__ import annotations

from tensorfold.domain.conversation.dialects.arg_key_value import ArgKeyValue
from tensorfold.domain.conversation.dialects.dialect import CallDialect
from tensorfold.domain.conversation.dialects.function_parameters import FunctionParameters
from tensorfold.domain.conversation.dialects.gemma4 import Gemma4
from tensorfold.domain.conversation.dialects.json_object import JsonObject

DIALECTS: dict[str, CallDialect] = {
    dialect.name: dialect for dialect in (FunctionParameters(), ArgKeyValue(), Gemma4(), JsonObject())
}
"""Every dialect by the name that a family's plan gives it."""


def call_dialect(name: str) -> CallDialect | None:
    """The dialect of that name; None for an empty one. Raises KeyError for a name that nobody wrote a dialect for."""
    return DIALECTS[name] if name else None


def recognised(text: str, tool: str) -> str:
    """The name of the dialect in which `text` holds a call of `tool`; empty when it is none of them."""
    return next((dialect.name for dialect in DIALECTS.values() if dialect.shows(text, tool)), "")
