"""Calls as JSON objects with a name and arguments."""

from __future__ import annotations

import json

from tensorfold.domain.conversation.offered_tools import Tool
from tensorfold.domain.gates.calls.lark import Lark, literal


def json_call(lark: Lark, tool: Tool) -> str:
    """The body of one call."""
    schema = {"type": "object", **tool.schema} if tool.schema else {"type": "object", "additionalProperties": False}
    before = f'\n{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "arguments": '
    opener, closer = lark.mark("<tool_call>"), lark.mark("</tool_call>")
    return lark.rule(f"{opener} {literal(before)} {lark.json(schema)} {literal('}' + chr(10))} {closer}")
