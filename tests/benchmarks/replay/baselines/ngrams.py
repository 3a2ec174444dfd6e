"""Two n-gram policies from their published descriptions, without a model of what will land.

`ngram-mod`: one table for all requests, from the last 24 ids to the id that followed them last; a draft is a walk along
the table of up to 64 ids, and one shorter than 48 is not made. `prompt lookup`: the last 3 ids, else the last 2, else
the last one, are looked for in the stream itself, and up to 10 ids behind the first place found are drafted.

Neither describes chances. Each gets those of its own past: a landing curve like that of context copies, with one class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorfold.domain.drafting.landing import LandingCurve, MatchClass
from tensorfold.domain.drafting.sources import CHAINS, Proposal, Widths

TABLE_KEY = 24
LEAST_WALK, MOST_WALK = 48, 64
LOOKUP_KEYS = (3, 2, 1)
LOOKUP_DRAFTS = 10

Find = Callable[[Sequence[int]], tuple[int, ...]]


class NgramTableFactory:
    """Opens sources over one table."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, ...], int] = {}
        self._curve = LandingCurve((MatchClass(TABLE_KEY, 0.94, 0.97),))

    def remember(self, run: Sequence[int]) -> None:
        """Enter every id of a run."""
        ids = tuple(run)
        for at in range(TABLE_KEY, len(ids)):
            self._next[ids[at - TABLE_KEY : at]] = ids[at]

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> NgramSource:
        """A source for one stream."""
        return NgramSource("ngram-mod", self._curve, self._walk)

    def _walk(self, tokens: Sequence[int]) -> tuple[int, ...]:
        end = list(tokens[-TABLE_KEY:])
        for _ in range(MOST_WALK):
            token = self._next.get(tuple(end[-TABLE_KEY:]))
            if token is None:
                break
            end.append(token)
        drafts = tuple(end[TABLE_KEY:])
        return drafts if len(drafts) >= LEAST_WALK else ()


class PromptLookupFactory:
    """Opens sources that look in their own stream only."""

    def __init__(self) -> None:
        self._curve = LandingCurve((MatchClass(1, 0.5, 0.8),))

    def remember(self, run: Sequence[int]) -> None:
        """No earlier request is looked in."""

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> NgramSource:
        """A source for one stream."""
        return NgramSource("prompt-lookup", self._curve, FirstPlaces())


class FirstPlaces:
    """Drafts behind the first place in a growing stream at which its last ids stand."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, ...], int] = {}
        self._read = 0

    def __call__(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """The drafts for a stream that stands at `tokens`."""
        for at in range(self._read, len(tokens)):
            for key in LOOKUP_KEYS:
                if at >= key:
                    self._places.setdefault(tuple(tokens[at - key : at]), at)
        self._read = len(tokens)
        for key in LOOKUP_KEYS:
            place = self._places.get(tuple(tokens[-key:]))
            if place is not None:
                return tuple(tokens[place : place + LOOKUP_DRAFTS])
        return ()


class NgramSource:
    """A DraftSource over one way to find drafts; `curve` is shared by its streams."""

    def __init__(self, name: str, curve: LandingCurve, find: Find) -> None:
        self.name = name
        self._curve = curve
        self._find = find
        self._offer: tuple[tuple[int, ...], int] = ((), 0)

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """What `find` gives, with the chances of what landed so far."""
        drafts = self._find(tokens)[: max(limit, 0)]
        self._offer = (drafts, len(tokens))
        return Proposal(self.name, drafts, self._curve.chances(1, len(drafts))) if drafts else None

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Learn how far the drafts were right, verified or not."""
        drafts, at = self._offer
        decided = tokens[at : at + len(drafts)]
        right = next((i for i, token in enumerate(decided) if token != drafts[i]), len(decided))
        self._curve.observe(1, right, right < len(decided))
