"""Draft sources that break every rule a source can break: wrong, foreign, too long, doubled, raising, no proposal.

No token may change and no stream may end for any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from tensorfold.domain.drafting.sources import Proposal
from tests.fakes.draft_sources import KnowingSource, SilentSource

Where = Literal["open", "propose", "observe"]


class AdversarialSource(KnowingSource):
    """Full windows whose first draft is always wrong and whose later drafts would have been right; sure of itself."""

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """Nothing that can be kept."""
        right = self.ahead(tokens, limit)
        if not right:
            return None
        return Proposal(self.name, (self.other(right[0]), *right[1:]), (1.0,) * len(right))


class ForeignIdSource(KnowingSource):
    """Right drafts up to a place that moves each round, then an id past the vocabulary or below zero."""

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """A window with one foreign id."""
        right = list(self.ahead(tokens, limit))
        if not right:
            return None
        turn = len(self.observed)
        foreign = (self._vocabulary, -1, 1 << 40, -(1 << 40), self._vocabulary + 7)
        right[turn % len(right)] = foreign[turn % len(foreign)]
        return Proposal(self.name, tuple(right), (0.9,) * len(right))


class OverlongSource(KnowingSource):
    """Right drafts, then far more than the limit allows."""

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """At least four times the limit, and 200 rows."""
        right = self.ahead(tokens, limit)
        if not right:
            return None
        more = max(3 * limit, 200)
        return Proposal(self.name, right + (0,) * more, (1.0,) * (len(right) + more))


class DuplicateSiblingsSource(KnowingSource):
    """A tree in which every draft stands twice beside itself; the right continuation hangs below the second of them."""

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """Pairs of equal siblings."""
        right = self.ahead(tokens, limit // 2)
        if not right:
            return None
        drafts: list[int] = []
        parents: list[int] = []
        row = 0
        for token in right:
            drafts += [token, token]
            parents += [row, row]
            row = len(drafts)
        return Proposal(self.name, tuple(drafts), (0.5,) * len(drafts), tuple(parents))


class RaisingSource(SilentSource):
    """Raises at one of its calls, every time."""

    def __init__(
        self, where: Where = "propose", error: Callable[[], BaseException] = lambda: RuntimeError("draft")
    ) -> None:
        super().__init__("raising")
        self._where = where
        self._error = error
        if where == "open":
            raise error()

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """Raises, or proposes a zero."""
        if self._where == "propose":
            raise self._error()
        return Proposal(self.name, (0,), (0.5,)) if limit > 0 else None

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Raises, or remembers."""
        if self._where == "observe":
            raise self._error()
        super().observe(source, drafted, kept, tokens)


def junk_proposals(name: str = "junk") -> tuple[Any, ...]:
    """Things that are no proposals, or proposals whose parts do not fit: what untyped code could hand back."""
    nan = float("nan")
    return (
        7,
        "text",
        (1, 2, 3),
        object(),
        Proposal(name, (), ()),
        Proposal(name, (1, 2, 3), ()),
        Proposal(name, (1,), (0.5, 0.5, 0.5)),
        Proposal(name, (1, 2), (nan, nan)),
        Proposal(name, (1, 2), (-3.0, float("inf"))),
        Proposal(name, (1, 2), (0.5, 0.5), (1, 0)),
        Proposal(name, (1, 2), (0.5, 0.5), (-1, -1)),
        Proposal(name, (1, 2), (0.5, 0.5), (0,)),
        Proposal(name, (1, 2), (0.5, 0.5), (0, 9)),
        Proposal(name, ("a", None), (0.5, 0.5)),  # type: ignore[arg-type]
        Proposal(name, (1.5, 2.5), (0.5, 0.5)),  # type: ignore[arg-type]
        Proposal(name, [1, 2], [0.5, 0.5]),  # type: ignore[arg-type]
        Proposal(name, None, None),  # type: ignore[arg-type]
        Proposal(None, (1,), (0.5,)),  # type: ignore[arg-type]
    )


class JunkSource(SilentSource):
    """Hands back every kind of junk in turn."""

    def __init__(self) -> None:
        super().__init__("junk")
        self._kinds = junk_proposals(self.name)
        self._turn = -1

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """Junk."""
        self._turn += 1
        junk: Proposal = self._kinds[self._turn % len(self._kinds)]
        return junk
