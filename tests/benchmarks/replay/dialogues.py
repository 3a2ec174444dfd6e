"""Conversations of our own making, read from the text beside this file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Messages in turn, the user's first."""

    title: str
    messages: tuple[str, ...]


def dialogues() -> tuple[Dialogue, ...]:
    """All of them, as they stand in the file: `# title`, then `> ` and `< ` before what user and assistant say."""
    text = (Path(__file__).parent / "dialogues.txt").read_text(encoding="utf-8")
    return tuple(map(_dialogue, text.removeprefix("# ").split("\n# ")))


def _dialogue(text: str) -> Dialogue:
    title, _, body = text.partition("\n")
    messages: list[list[str]] = []
    for line in body.rstrip("\n").split("\n"):
        # The signs of a message alternate, so that a line that merely begins with one belongs to its message.
        if line.startswith("> <"[len(messages) % 2 * 2] + " "):
            messages.append([line[2:]])
        else:
            messages[-1].append(line)
    return Dialogue(title, tuple("\n".join(lines).rstrip() for lines in messages))
