"""Copies from the record for one stream: what followed earlier places that match its end is drafted again.

Knows one stream's ids, the reader's side of the record and the shared policy. A copy is offered when it is expected to
land more than the stream's own drafts did lately; whether its rows pay is decided by row allocation from the chances.
Nothing here can change a token: what is offered is verified like any other draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorfold.domain.drafting.sources import CHAINS, Proposal, Widths, took_part
from tensorfold.domain.recall.branches import Drafts, Vote, likeliest, spread
from tensorfold.domain.recall.cursors import Cursors
from tensorfold.domain.recall.layout import LEAD_IDS
from tensorfold.domain.recall.places import Places
from tensorfold.domain.recall.policy import Ledger, OfferPolicy, OfferSettings
from tensorfold.domain.recall.rates import match_class

RECALL = "recall"
"""Name of the source that copies from the record."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """A proposal waiting for its outcome, made when the stream held `at` ids, from places of `era`.

    Its ledger is the one it was made under: when the record is emptied meanwhile, the outcome counts nowhere.
    """

    drafts: Drafts
    at: int
    era: int
    kind: int
    ledger: Ledger
    repeat: bool
    behind: int
    probe: bool = False
    graft: bool = False


class RecallSource:
    """A DraftSource over the record. Windows widen while the stream's copies land whole."""

    def __init__(
        self, places: Places, policy: OfferPolicy, prompt: int, widths: Widths, settings: OfferSettings
    ) -> None:
        """`prompt` ids begin the stream; `widths` are what the model verifies."""
        self._places = places
        self._policy = policy
        self._settings = settings
        self._prompt = prompt
        self._chain_rows = widths.chain - 1
        self._tree_rows = widths.tree - 1
        self._widest = min(settings.widest_drafts, max(self._chain_rows, self._tree_rows))
        self._cursors = Cursors(places, settings.cursors, settings.resync_rounds)
        self._offer: _Offer | None = None
        # Set where a copy begins.
        self._window: int
        self._own = settings.own_drafts
        self._landed = 0
        self._rest = 0
        self._graft_wait = 0

    @property
    def name(self) -> str:
        """The name of copies from the record."""
        return RECALL

    @property
    def own_drafts(self) -> float:
        """Drafts that the stream's other sources landed a round, lately."""
        return self._own

    @property
    def resting_rounds(self) -> int:
        """Rounds that still pass without asking the record."""
        return self._rest

    # -- proposing -----------------------------------------------------------------------------------------------

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """What followed the places that match; None without one, at rest, or where own drafts promise more."""
        offer, self._offer = self._offer, None
        if offer is not None:
            _unseen(offer)
        if self._rest or limit < 1:
            return None
        if self._cursors.follow(tokens):
            self._window = self._settings.resumed_drafts if self._cursors.resumed else self._settings.base_drafts
            self._landed = 0
        offer = self._offer = self._choose(tokens, limit) if self._cursors.live else None
        if offer is None:
            return None
        drafts = offer.drafts
        return Proposal(RECALL, drafts.tokens, drafts.chances, drafts.parents, offer.graft)

    def _choose(self, tokens: Sequence[int], limit: int) -> _Offer | None:
        """The offer to make for the places that match now, if any."""
        live = self._cursors.live
        count = min(self._window, self._widest, limit)
        votes = self._votes(count)
        ledger = self._policy.ledger
        kind = match_class(live[0].length, self._cursors.resumed)
        rates = ledger.rates.prior if self._settings.eager else ledger.rates.chances
        drafts = self._drafts(votes, rates(kind, count, self._landed), limit)
        if not drafts.tokens:
            return None
        # The record keeps LEAD_IDS before what a request newly read: a repeated one may match no further back.
        repeat = live[0].length >= len(tokens) - self._prompt + min(self._prompt, LEAD_IDS)
        offer = _Offer(drafts, len(tokens), self._cursors.era, kind, ledger, repeat, self._landed)
        if self._settings.eager:
            return offer
        wanted = drafts.expected > self._own
        if not wanted:
            if self._grafts(drafts) and not ledger.probe_due():
                return replace(offer, graft=True)
            ledger.passed_over()
        if ledger.probe_due():
            # A true copy's chances, so that a probe gets rows where a true copy would; where no more is hoped for than
            # expected, an offer that is wanted anyway is probe enough.
            hoped = self._drafts(votes, ledger.rates.prior(kind, count, self._landed), limit)
            better = hoped.expected > drafts.expected
            if better or not wanted:
                ledger.probe_began()
                return replace(offer, drafts=hoped if better else drafts, probe=True)
        return offer if wanted else None

    def _grafts(self, drafts: Drafts) -> bool:
        """Whether drafts that own drafts are expected to beat may share a tree with them now."""
        return self._tree_rows > 0 and not self._graft_wait and drafts.expected > 0.0

    def _votes(self, count: int) -> list[Vote]:
        """What follows each place, at most `count` ids; places that match far shorter than the longest have no vote."""
        live, recency = self._cursors.live, self._settings.recency
        votes: list[Vote] = []
        for place in live:
            if 2 * place.length < live[0].length:
                break
            ids = self._cursors.following(place, count)
            if ids:
                votes.append(Vote(recency ** len(votes) * 2.0 ** match_class(place.length), ids))
        return votes

    def _drafts(self, votes: Sequence[Vote], chances: Sequence[float], limit: int) -> Drafts:
        """A chain, or a tree where one is verified and expected to land more."""
        rows = min(limit, self._chain_rows)
        continuations = {vote.ids for vote in votes}
        if len(continuations) == 1:
            ids = continuations.pop()[:rows]
            return Drafts(ids, tuple(chances[: len(ids)]))
        chain = likeliest(votes, chances, rows)
        if not self._tree_rows:
            return chain
        tree = spread(votes, chances, min(limit, self._tree_rows), self._settings.dominant)
        return tree if tree.parents is not None and tree.expected > chain.expected else chain

    # -- after the round -----------------------------------------------------------------------------------------

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Learn from the round: from its own copy what lands, from rounds without one what the other drafts land."""
        offer, self._offer = self._offer, None
        verified = drafted > 0 and took_part(RECALL, source)
        self._graft_wait = max(self._graft_wait - 1, 0)
        if not verified:
            # Rounds in which nobody drafted count as 0: drafts that landed a while ago and are no longer made must not
            # hold copies off for the rest of the stream.
            self._own += self._settings.own_rate * (kept - self._own)
        if offer is None:
            self._rest = max(self._rest - 1, 0)
        elif not verified:
            _unseen(offer)
        elif offer.era == self._places.era:
            self._settle(offer, drafted, kept, tokens)

    def _settle(self, offer: _Offer, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        settings, ledger = self._settings, offer.ledger
        rows = min(drafted, len(offer.drafts.tokens))
        landing = offer.drafts.landing(tokens[offer.at :], rows)
        landed = min(landing.landed, kept)
        missed = landing.missed and landed == landing.landed
        ledger.verified(offer.kind, rows, landed, missed, offer.behind)
        self._landed = 0 if missed else self._landed + landed
        if offer.probe and not (landed or missed):
            ledger.probe_unseen()
        elif offer.probe:
            ledger.probe_ended(landed >= max(1.0, self._own))
        if missed:
            self._window = settings.base_drafts
            if not landed:
                self._rest = 0 if settings.eager else settings.rest
        elif landed:
            # Rows double, so drafts double and one more; a window cut short is no reason for a wider one.
            self._window = max(self._window, min(2 * landed + 1, settings.widest_drafts))
            if offer.repeat and landing.whole:
                self._window = settings.widest_drafts
        if offer.graft and (landed or missed):
            self._graft_wait = 0 if landed else settings.graft_every - 1


def _unseen(offer: _Offer) -> None:
    """None of an offer's ids was verified, which says nothing about them."""
    if offer.probe:
        offer.ledger.probe_unseen()
    else:
        offer.ledger.passed_over()


class RecallSourceFactory:
    """Opens a RecallSource for each stream; what lands in one stream informs the offers of all."""

    def __init__(self, places: Places, policy: OfferPolicy, settings: OfferSettings | None = None) -> None:
        self._places = places
        self._policy = policy
        self._settings = settings or policy.settings

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> RecallSource:
        """A source that has looked nothing up yet."""
        return RecallSource(self._places, self._policy, len(prompt), widths, self._settings)
