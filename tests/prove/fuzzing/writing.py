"""Writes JSON in any spelling that means the same, and values that Python's own types cannot hold.

`Raw` is text that stands where a value should; `Pairs` is an object with any keys in any order, twice too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Raw:
    """Text in place of a value."""

    text: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """An object as it is written."""

    items: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Style:
    """How a body is spelled: blanks between its parts, the share of characters that are escaped, shuffled keys."""

    blank: str = ""
    escaped: float = 0.0
    shuffled: bool = False


def style(chance: random.Random) -> Style:
    """Any style, most often the plain one."""
    blank = chance.choice(("", "", "", " ", "\n", "\t \r\n"))
    return Style(blank, chance.choice((0.0, 0.0, 0.1, 1.0)), chance.random() < 0.3)


def write(value: Any, chance: random.Random, style: Style) -> str:
    """The value as text. Unpaired surrogates are written as escapes."""
    blank = style.blank
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, (dict, Pairs)):
        items: Iterable[tuple[str, Any]] = value.items() if isinstance(value, dict) else value.items
        parts = [f"{_string(key, chance, style)}{blank}:{blank}{write(part, chance, style)}" for key, part in items]
        if style.shuffled and isinstance(value, dict):
            chance.shuffle(parts)
        return f"{{{blank}{f',{blank}'.join(parts)}{blank}}}"
    if isinstance(value, (list, tuple)):
        return f"[{blank}{f',{blank}'.join(write(part, chance, style) for part in value)}{blank}]"
    if isinstance(value, str):
        return _string(value, chance, style)
    return json.dumps(value)


def _string(text: str, chance: random.Random, style: Style) -> str:
    if not style.escaped:
        return json.dumps(text, ensure_ascii=any("\ud800" <= letter <= "\udfff" for letter in text))
    return '"' + "".join(_letter(letter, chance, style.escaped) for letter in text) + '"'


def _letter(letter: str, chance: random.Random, escaped: float) -> str:
    if letter in '"\\' or letter < " " or "\ud800" <= letter <= "\udfff" or chance.random() < escaped:
        units = letter.encode("utf-16-be", "surrogatepass").hex()
        return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    return letter
