"""Grammars of forced calls of a few tools, in any of the forms of calls."""

from __future__ import annotations

import random

from tensorfold.application.ports.services import GrammarCompiler, GrammarMatcher
from tensorfold.domain.conversation.dialects import DIALECTS
from tensorfold.domain.conversation.offered_tools import OfferedTools
from tensorfold.domain.gates.calls import calls_grammar

TOOLS = (
    {
        "name": "find_files",
        "parameters": {
            "type": "object",
            "properties": {
                "pattern": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50},
                "kind": {"enum": ["file", "dir", None]},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            },
            "required": ["pattern"],
        },
    },
    {"name": "now"},
    {"name": "say", "parameters": {"properties": {"text": {"type": ["string", "null"]}, "loud": {"type": "boolean"}}}},
)
OFFERED = OfferedTools([{"function": tool} for tool in TOOLS])


def forced(compiler: GrammarCompiler, rng: random.Random) -> GrammarMatcher:
    """A matcher at the start of one call or several."""
    names = rng.choice((OFFERED.names, OFFERED.names[:1]))
    tools = [tool for name in names if (tool := OFFERED.get(name)) is not None]
    grammar = calls_grammar(rng.choice(sorted(DIALECTS)), tools, {}, most=rng.choice((1, 4)))
    return compiler.compile(str(grammar.kind), grammar.text)
