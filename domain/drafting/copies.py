"""Copies from the stream's own context: when the last ids occurred before, what followed them then is drafted again.

Knows one stream's ids. Windows widen while copies land whole and fall back when they do not; copies that keep missing
fall silent for a while. Whether a window pays, and how much of it, is decided by row allocation from the chances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorfold.domain.drafting.copy_index import CopyIndex, Match, continuation
from tensorfold.domain.drafting.landing import LandingCurve
from tensorfold.domain.drafting.sources import CHAINS, OWN_CONTEXT, Proposal, Widths, took_part

__all__ = ["CopyIndex", "CopySettings", "CopySource", "CopySourceFactory"]


@dataclass(frozen=True, slots=True)
class CopySettings:
    """Rules of copying.

    `enter_match` ids before the end must match an earlier place. Short matches are often chance, which their landing
    class knows: what they are worth is decided by what landed, not by a longer entrance. `base_drafts` is the first
    window (16 rows with the pending one, of which row allocation grants what pays) and `widest_drafts` the last.
    `misses` offers in a row that land nothing bring `silence` rounds without offers.
    """

    enter_match: int = 2
    base_drafts: int = 15
    widest_drafts: int = 127
    misses: int = 8
    silence: int = 4


@dataclass(frozen=True, slots=True)
class _Offer:
    """A proposal waiting for its outcome: made when the context held `at` ids, from the place of `match`."""

    tokens: tuple[int, ...]
    at: int
    match: Match
    behind: int


class CopySource:
    """A DraftSource over one stream's prompt and reply.

    A window belongs to the place that it copies from: after a window that landed whole, the next one from the same
    place has twice the rows; any other begins at `base_drafts`.
    """

    def __init__(self, curve: LandingCurve, settings: CopySettings | None = None) -> None:
        self._settings = settings or CopySettings()
        self._curve = curve
        self._index = CopyIndex(enter=self._settings.enter_match)
        self._offer: _Offer | None = None
        self._drafts = self._settings.base_drafts
        self._distance: int | None = None
        self._landed = 0
        self._missed = 0
        self._silent = 0

    @property
    def name(self) -> str:
        """The name of copies from the own context."""
        return OWN_CONTEXT

    @property
    def silent_rounds(self) -> int:
        """Rounds that still pass without an offer."""
        return self._silent

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """What followed the longest and, of equals, most recent match; None without one, or while silent.

        The index is built at the first call that may offer, and catches up after a silence.
        """
        self._offer = None
        if self._silent or limit < 1:
            return None
        self._index.read(tokens)
        match = self._index.best()
        if match is None:
            return None
        if match.distance != self._distance:
            self._distance, self._drafts, self._landed = match.distance, self._settings.base_drafts, 0
        drafts = continuation(tokens, match.distance, min(self._drafts, limit))
        self._offer = _Offer(drafts, len(tokens), match, self._landed)
        return Proposal(OWN_CONTEXT, drafts, self._curve.chances(match.length, len(drafts), self._landed))

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Learn from the round.

        The landing curve learns from every proposal, also one that was not verified, since the committed ids tell how
        far it would have landed. Widening and silence count only windows in which copied drafts were verified.
        """
        offer, self._offer = self._offer, None
        if offer is None:
            self._silent = max(self._silent - 1, 0)
            return
        decided = tokens[offer.at : offer.at + len(offer.tokens)]
        right = next((i for i, token in enumerate(decided) if token != offer.tokens[i]), len(decided))
        missed = right < len(decided)
        self._curve.observe(offer.match.length, right, missed, offer.behind)
        self._landed = 0 if missed else self._landed + right
        if drafted > 0 and took_part(OWN_CONTEXT, source):
            self._settle(min(drafted, len(offer.tokens)), min(kept, right), missed)

    def _settle(self, drafted: int, landed: int, missed: bool) -> None:
        settings = self._settings
        if landed and not missed:
            # Rows double, so drafts double and one more; a window cut short by allocation is no reason for a wider one.
            self._drafts = min(max(self._drafts, 2 * drafted + 1), settings.widest_drafts)
        else:
            self._drafts = settings.base_drafts
        self._missed = 0 if landed else self._missed + 1
        if self._missed >= settings.misses:
            self._missed, self._silent = 0, settings.silence


class CopySourceFactory:
    """Opens a CopySource for each stream; what lands in one stream informs the chances of all."""

    def __init__(self, settings: CopySettings | None = None) -> None:
        self._settings = settings or CopySettings()
        self._curve = LandingCurve()

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> CopySource:
        """A source that has read nothing yet: the prompt is read with the first tokens it is asked to continue."""
        return CopySource(self._curve, self._settings)
