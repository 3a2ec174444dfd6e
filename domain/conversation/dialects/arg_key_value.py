"""GLM's calls: the name, then a tag for each key and one for its value.

`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`, line breaks between the tags or none.
"""

from __future__ import annotations

import re

from tensorfold.domain.conversation.dialects.dialect import (
    MOST_KEY,
    Begin,
    Broken,
    Reading,
    Source,
    key_of,
    offered,
    whole,
)
from tensorfold.domain.conversation.dialects.tagged_values import ValueTags, value
from tensorfold.domain.conversation.offered_tools import OfferedTools

_KEY = rf"<arg_key>[^<]{{1,{MOST_KEY}}}"
_TAGS = ValueTags(
    end=re.compile(rf"(?P<next></arg_value>\s*(?={_KEY}</arg_key>\s*<arg_value>))|</arg_value>\s*</tool_call>"),
    cut=re.compile(r"(?!)"),  # nothing short of the last mark says that no other key would have come
    maybe=re.compile(rf"(?:</arg_value>\s*)?(?:<arg_key>[^<]{{0,{MOST_KEY}}}(?:</arg_key>\s*)?)?(?:<[/a-z_]*)?\Z"),
    line=False,
)


class ArgKeyValue:
    """Pairs of keys and values."""

    name = "arg_key_value"
    opener = "<tool_call>"
    bare_opener = ""
    marks = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")

    def read(self, source: Source, tools: OfferedTools) -> Reading[None]:
        """One call behind `<tool_call>`."""
        yield from source.blank()
        name = yield from _name(source, tools)
        tool = offered(tools, name)
        if (yield from source.one_of("<arg_key>", "</tool_call>")) == "</tool_call>":
            yield from whole(tool.name, "{}")
            return
        key = key_of((yield from source.until("</arg_key>", MOST_KEY)))
        yield from source.blank()
        yield from source.one_of("<arg_value>")
        yield Begin(tool.name)
        first = True
        while not (yield from value(source, _TAGS, tool, key, first)):
            yield from source.one_of("<arg_key>")
            key, first = (yield from source.until("</arg_key>")).strip(), False
            yield from source.blank()
            yield from source.one_of("<arg_value>")

    def shows(self, text: str, tool: str) -> bool:
        """By the name behind the opener and a key's tag."""
        return "<arg_key>" in text and re.search(rf"<tool_call>\s*{re.escape(tool)}\s*<arg_key>", text) is not None


def _name(source: Source, tools: OfferedTools) -> Reading[str]:
    """The text up to the next tag."""
    most = tools.longest_name
    while (found := source.text.find("<", source.at)) < 0:
        if len(source.text[source.at :].rstrip()) > most:
            raise Broken
        yield from source.more()
    name, source.at = source.text[source.at : found].rstrip(), found
    return name
