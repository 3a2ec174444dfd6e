"""Stop strings, matched on the bytes of a reply token by token, across token and character borders.

A reply ends with the token that completes a match, so it ends at the same token however its tokens arrive. Of the
stops that one token completes, the one that begins first in the text counts, then the longest. Knows no characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensorfold.domain.conversation.thoughts import ThoughtSplitter
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.gate import Cut, Finish


@dataclass(frozen=True, slots=True)
class Match:
    """A completed stop string; it begins `back` bytes before the end of the bytes that completed it."""

    stop: bytes
    back: int


class StopMatcher:
    """All stop strings as one automaton (Aho and Corasick, 1975). Immutable; a state is an int, 0 at the start.

    Built in time and space of the strings' bytes; a byte costs amortised constant time. Empty strings are no stops.
    """

    __slots__ = ("_depths", "_edges", "_fallbacks", "_firsts", "_stops")

    def __init__(self, stops: Iterable[bytes]) -> None:
        self._edges: dict[int, int] = {}
        self._depths = [0]
        self._fallbacks = [0]
        self._stops: list[bytes | None] = [None]
        stops = [stop for stop in stops if stop]
        self._firsts = frozenset(stop[0] for stop in stops)
        for stop in stops:
            self._add(stop)
        self._link()

    def __bool__(self) -> bool:
        """Whether there is anything to match."""
        return bool(self._firsts)

    def held(self, state: int) -> int:
        """Length of the longest suffix of the bytes so far that begins some stop string."""
        return self._depths[state]

    def step(self, state: int, data: bytes) -> tuple[int, Match | None]:
        """The state after one token's bytes, and the match that they complete, if any."""
        if not state and self._firsts.isdisjoint(data):
            return 0, None
        found: tuple[int, int, bytes] | None = None
        for end, byte in enumerate(data, start=1):
            state = self._next(state, byte)
            stop = self._stops[state]
            if stop is not None:
                candidate = (end - len(stop), -len(stop), stop)
                found = candidate if found is None else min(found, candidate)
        return state, None if found is None else Match(found[2], len(data) - found[0])

    def _next(self, state: int, byte: int) -> int:
        while (target := self._edges.get(state << 8 | byte)) is None:
            if not state:
                return 0
            state = self._fallbacks[state]
        return target

    def _add(self, stop: bytes) -> None:
        state = 0
        for depth, byte in enumerate(stop, start=1):
            target = self._edges.setdefault(state << 8 | byte, len(self._depths))
            if target == len(self._depths):
                self._depths.append(depth)
                self._fallbacks.append(0)
                self._stops.append(None)
            state = target
        self._stops[state] = stop

    def _link(self) -> None:
        """Fill in where each state falls back to, nearest states first, and the longest stop that ends in it."""
        for edge, target in sorted(self._edges.items(), key=lambda item: self._depths[item[1]]):
            parent, byte = edge >> 8, edge & 255
            if parent:
                fallback = self._next(self._fallbacks[parent], byte)
                self._fallbacks[target] = fallback
                if self._stops[target] is None:
                    self._stops[target] = self._stops[fallback]


class StopStrings:
    """The gate of one reply's stop strings, over the bytes that its tokens show. Thoughts are not searched.

    `thoughts` tells them apart; without it all is answer.
    """

    __slots__ = ("_begun", "_bytes", "_matcher", "_state", "_thoughts")

    def __init__(
        self, token_bytes: TokenBytes, stops: Sequence[bytes], thoughts: ThoughtSplitter | None = None
    ) -> None:
        self._bytes = token_bytes
        self._matcher = StopMatcher(stops)
        self._thoughts = thoughts
        self._state = 0
        self._begun = False

    def scan(self, tokens: Sequence[int]) -> Cut | None:
        """The first token that completes a stop string."""
        return self._walk(tokens, keep=False)

    def observe(self, tokens: Sequence[int]) -> None:
        """Move on past tokens that joined the reply."""
        self._walk(tokens, keep=True)

    def room(self) -> int | None:
        """No stop is known before its last token is drawn."""
        return None

    def _walk(self, tokens: Sequence[int], keep: bool) -> Cut | None:
        """The first cut in tokens. With `keep` all of them are taken note of, whether they hold a stop or not."""
        state, begun = self._state, self._begun
        thoughts = self._thoughts if keep or self._thoughts is None else self._thoughts.copy()
        cut: Cut | None = None
        for index, token in enumerate(tokens):
            data, begun = self._bytes.shown(token, begun)
            for piece in _answers(data, thoughts):
                state, match = self._matcher.step(state, piece)
                if match is not None and cut is None:
                    cut = Cut(index, finish=Finish.STOP, stop=match.stop)
            if cut is not None and not keep:
                return cut
        if keep:
            self._state, self._begun = state, begun
        return cut


def _answers(data: bytes, thoughts: ThoughtSplitter | None) -> Sequence[bytes]:
    return (data,) if thoughts is None else [piece for thought, piece in thoughts.feed(data) if not thought]
