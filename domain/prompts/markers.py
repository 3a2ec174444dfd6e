"""The ids that open messages in rendered prompts, and how they are told from renders of a chat template.

Knows no template: it is handed ids. Where nothing can be told there are no markers, and prompts are cut on a plain
grid; a marker that a user writes out moves a cut and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST_ASSISTANT = 64
"""Ids of an assistant opener at most; it must not be longer than the shortest chunk."""


@dataclass(frozen=True, slots=True)
class Markers:
    """`openers` are special ids that begin a message; `assistant` the ids that begin one of the assistant's."""

    openers: frozenset[int] = frozenset()
    assistant: tuple[int, ...] = ()

    @property
    def found(self) -> bool:
        """Whether there are any."""
        return bool(self.openers or self.assistant)

    def resume_points(self, ids: NDArray[np.int64]) -> list[int]:
        """Where chunks may begin, ascending: each assistant message, and the second message."""
        points = set(self._assistant_starts(ids))
        points.add(self.second_message(ids))
        return sorted(points - {0})

    def second_message(self, ids: NDArray[np.int64]) -> int:
        """The position of the second opener; 0 where there is none."""
        if not self.openers:
            return 0
        found = np.flatnonzero(np.isin(ids, np.fromiter(self.openers, np.int64, len(self.openers))))
        return int(found[1]) if len(found) > 1 else 0

    def _assistant_starts(self, ids: NDArray[np.int64]) -> list[int]:
        size = len(self.assistant)
        if not size or len(ids) < size:
            return []
        places = np.flatnonzero(ids[: len(ids) - size + 1] == self.assistant[0])
        for offset, token in enumerate(self.assistant[1:], start=1):
            places = places[ids[places + offset] == token]
        starts: list[int] = places.tolist()
        return starts


NO_MARKERS = Markers()


def markers_of(
    pieces: Mapping[str, Sequence[Sequence[int]]], systems: Sequence[Sequence[int]], special: Set[int]
) -> Markers:
    """Markers told from what each message added to a render.

    `pieces` holds, by role, the ids that several different messages of it added; `systems` are whole renders of
    system messages alone, where the template made any. `special` are ids that no text becomes by chance.
    """
    openers = {opener for role in pieces if (opener := _opener(pieces[role], special)) is not None}
    if not openers:
        return NO_MARKERS
    first = _common(systems)
    if not openers.intersection(first):
        # The last special id before a system text: those in front of it begin the prompt, not the message.
        openers.update([token for token in first if token in special][-1:])
    return Markers(
        frozenset(openers), _assistant(_common(pieces.get("assistant", ())), _common(pieces.get("user", ())))
    )


def _opener(pieces: Sequence[Sequence[int]], special: Set[int]) -> int | None:
    common = _common(pieces)
    return common[0] if common and common[0] in special else None


def _assistant(assistant: tuple[int, ...], user: tuple[int, ...]) -> tuple[int, ...]:
    """The assistant's common beginning up to the first id that tells it from a user's; none where nothing does."""
    for at, token in enumerate(assistant[:MOST_ASSISTANT]):
        if at >= len(user) or token != user[at]:
            return assistant[: at + 1]
    return ()


def _common(pieces: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The beginning that all pieces share; of a single piece nothing is known."""
    if len(pieces) < 2:
        return ()
    shared = []
    for tokens in zip(*pieces, strict=False):
        if len(set(tokens)) > 1:
            break
        shared.append(tokens[0])
    return tuple(shared)
