"""Writes a grammar in llguidance's form of Lark, rule by rule. Knows no dialect and no schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tensorfold.domain.gates.tidy import tidied

BLANKS = r"[ \n\r\t]{1,64}"
"""Between the parts of a JSON text."""


class UnheldError(ValueError):
    """A schema, a name or a pattern that no grammar here can hold a reply to; `message` is a sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Lark:
    """Rules with names of their own. `marks` are the ids of marks that are special tokens; others are text."""

    def __init__(self, marks: Mapping[str, int]) -> None:
        self._marks = marks
        self._lines: list[str] = []

    def rule(self, body: str) -> str:
        """The name of a new rule."""
        name = f"r{len(self._lines)}"
        self._lines.append(f"{name}: {body}")
        return name

    def terminal(self, body: str) -> str:
        """The name of a new terminal: one piece of text, described by regular expressions alone."""
        name = f"T{len(self._lines)}"
        self._lines.append(f"{name}: {body}")
        return name

    def mark(self, mark: str) -> str:
        """A mark of a dialect, as its special token where it has one."""
        token = self._marks.get(mark)
        return literal(mark) if token is None else f"<[{token}]>"

    def is_token(self, mark: str) -> bool:
        """Whether a mark is a special token, which no text holds."""
        return mark in self._marks

    def json(self, schema: Mapping[str, Any]) -> str:
        """JSON of a schema."""
        return self.rule("%json " + json.dumps({**tidied(schema), "x-guidance": {"whitespace_pattern": BLANKS}}))

    def text(self, start: str) -> str:
        """The whole grammar; it begins with `start`."""
        return "\n".join([f"start: {start}", *self._lines])


def literal(text: str) -> str:
    """A text as it stands. Raises UnheldError for an empty one."""
    if not text:
        raise UnheldError("an empty text cannot be held")
    return json.dumps(text, ensure_ascii=False)


def either(bodies: Sequence[str]) -> str:
    """One of several."""
    return bodies[0] if len(bodies) == 1 else f"({' | '.join(bodies)})"
