"""Grammars of forced tool calls, one for each way in which models write calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorfold.domain.conversation.offered_tools import Tool
from tensorfold.domain.gates.calls.gemma import gemma_call
from tensorfold.domain.gates.calls.json_objects import json_call
from tensorfold.domain.gates.calls.lark import Lark, UnheldError, either
from tensorfold.domain.gates.calls.tagged import ARG_KEY_VALUE, FUNCTION_PARAMETERS, tagged_call
from tensorfold.domain.gates.grammar import Grammar, GrammarKind

MOST_CALLS = 32
_APART = {"gemma4": ""}

__all__ = ["MOST_CALLS", "UnheldError", "calls_grammar"]


def calls_grammar(
    dialect: str,
    tools: Sequence[Tool],
    marks: Mapping[str, int],
    *,
    most: int = MOST_CALLS,
    answer: Mapping[str, Any] | None = None,
) -> Grammar:
    """Replies of at least one and at most `most` calls of `tools`, or of JSON of the schema `answer` where it is given.

    `marks` are the dialect's marks that are special tokens. Raises UnheldError with the reason, and the tool's name.
    """
    lark = Lark(marks)
    call = lark.rule(either([_call(lark, dialect, tool) for tool in tools]))
    apart = _APART.get(dialect, '"\\n" ')
    calls = call if most < 2 else f"{call} ({apart}{call}){{0,{most - 1}}}"
    return Grammar(GrammarKind.LARK, lark.text(calls if answer is None else f"{calls} | {lark.json(answer)}"))


def _call(lark: Lark, dialect: str, tool: Tool) -> str:
    try:
        match dialect:
            case "function_parameters":
                return tagged_call(lark, FUNCTION_PARAMETERS, tool)
            case "arg_key_value":
                return tagged_call(lark, ARG_KEY_VALUE, tool)
            case "gemma4":
                return gemma_call(lark, tool)
            case "json":
                return json_call(lark, tool)
    except UnheldError as why:
        raise UnheldError(f"A call of the tool {tool.name[:64]!r} cannot be forced: {why.message}.") from None
    raise UnheldError(f"Calls in this model's form ({dialect}) cannot be forced.")
