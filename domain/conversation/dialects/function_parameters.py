"""Qwen's and Nemotron's calls: a function's tag, and a tag with a line of its own for each parameter.

`<tool_call>\\n<function=NAME>\\n<parameter=KEY>\\nVALUE\\n</parameter>\\n</function>\\n</tool_call>`
"""

from __future__ import annotations

import re

from tensorfold.domain.conversation.dialects.dialect import (
    MOST_KEY,
    Begin,
    Reading,
    Source,
    key_of,
    offered,
    whole,
)
from tensorfold.domain.conversation.dialects.tagged_values import ValueTags, value
from tensorfold.domain.conversation.offered_tools import OfferedTools

_KEY = rf"<parameter=[^<>\n]{{1,{MOST_KEY}}}"
_TAGS = ValueTags(
    end=re.compile(
        rf"(?P<next>\n?</parameter>\s*(?={_KEY}>))|\n?(?:</parameter>\s*(?:</function>\s*)?|</function>\s*)</tool_call>"
    ),
    cut=re.compile(r"\n?</parameter>\s*</function>\s*(?:<(?:/(?:t(?:o(?:o(?:l(?:_[cal]*)?)?)?)?)?)?)?\Z"),
    maybe=re.compile(rf"\n?(?:</parameter>\s*)?(?:</function>\s*|{_KEY})?(?:<[/a-z_]*=?)?\Z"),
    line=True,
)


class FunctionParameters:
    """Parameters as tags inside a function's tag."""

    name = "function_parameters"
    opener = "<tool_call>"
    bare_opener = ""
    marks = ("<tool_call>", "</tool_call>")

    def read(self, source: Source, tools: OfferedTools) -> Reading[None]:
        """One call behind `<tool_call>`."""
        yield from source.blank()
        yield from source.one_of("<function=")
        tool = offered(tools, (yield from source.until(">", tools.longest_name)))
        yield from source.blank()
        if (yield from source.one_of("<parameter=", "</function>")) == "</function>":
            yield from source.closing("</tool_call>")
            yield from whole(tool.name, "{}")
            return
        key = key_of((yield from source.until(">", MOST_KEY)))
        yield Begin(tool.name)
        first = True
        while not (yield from value(source, _TAGS, tool, key, first)):
            yield from source.one_of("<parameter=")
            key, first = (yield from source.until(">")).strip(), False

    def shows(self, text: str, tool: str) -> bool:
        """By the function's tag."""
        return f"<function={tool}>" in text
