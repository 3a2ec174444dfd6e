"""Edits as a programmer makes them: a line changed, added or removed here and there in a source file."""

from __future__ import annotations

import keyword
import random
import re

_NAMES = re.compile(r"\b[a-z_]{4,}\b")
_ADDED = (
    "# Kept for callers that still rely on it.",
    "# The order matters here.",
    "# Checked again below.",
    "# Both forms are accepted.",
)


def reworked(text: str, every: int, rng: random.Random) -> str:
    """`text` with an edit every `every` lines on average: a name changed in a line, a line added, or one left out."""
    out: list[str] = []
    for line in text.split("\n"):
        if not line.strip() or rng.random() * every >= 1.0:
            out.append(line)
            continue
        kind = rng.random()
        if kind < 0.6:
            out.append(_renamed(line, rng))
        elif kind < 0.85:
            indent = line[: len(line) - len(line.lstrip())]
            out += [indent + rng.choice(_ADDED), line]
    return "\n".join(out)


def _renamed(line: str, rng: random.Random) -> str:
    names = [name for name in _NAMES.findall(line) if not keyword.iskeyword(name)]
    if not names:
        return line + "  # as before"
    name = rng.choice(names)
    return line.replace(name, f"{name}_{rng.choice(('new', 'all', 'next', 'text', 'value'))}", 1)
