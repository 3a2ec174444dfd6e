"""Edits as a programmer makes them: names changed wherever they stand, and a line added or removed here and there."""

from __future__ import annotations

import keyword
import random
import re
from collections import Counter

_NAMES = re.compile(r"\b[a-z_]{4,}\b")
_SUFFIXES = ("_new", "_all", "_next", "_text", "_value")
_ADDED = (
    "# Kept for callers that still rely on it.",
    "# The order matters here.",
    "# Checked again below.",
    "# Both forms are accepted.",
)


def renamed(text: str, names: int, rng: random.Random) -> str:
    """`text` with that many of its names changed, each everywhere; fewer where it has not as many."""
    counted = Counter(name for name in _NAMES.findall(text) if not keyword.iskeyword(name))
    often = sorted(name for name, count in counted.items() if count > 1) or sorted(counted)
    chosen = rng.sample(often, k=min(names, len(often)))
    for name in chosen:
        text = re.sub(rf"\b{name}\b", name + rng.choice(_SUFFIXES), text)
    return text


def rearranged(text: str, every: int, rng: random.Random) -> str:
    """`text` with a line added or removed every `every` lines on average."""
    out: list[str] = []
    for line in text.split("\n"):
        if not line.strip() or rng.random() * every >= 1.0:
            out.append(line)
        elif rng.random() < 0.6:
            out += [line[: len(line) - len(line.lstrip())] + rng.choice(_ADDED), line]
    return "\n".join(out)
