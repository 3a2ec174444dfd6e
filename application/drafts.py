"""From what the draft sources offer to the windows of a round: ask, choose, size by cost, and tell them the outcome.

A source is never trusted: what it raises costs its drafts for one round, ids outside the vocabulary cut its proposal,
and nothing it says can reach a token except through verification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorfold.application.counters import Counters
from tensorfold.application.faults import named
from tensorfold.application.flight import Flight
from tensorfold.application.heads import Heads
from tensorfold.application.live import Live
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.allocation import RowRequest, allocate
from tensorfold.domain.drafting.arbitration import arbitrate, merge
from tensorfold.domain.drafting.costs import CostCurve
from tensorfold.domain.drafting.sources import DraftSource, DraftSourceFactory, Proposal, Widths, sound
from tensorfold.domain.streams import Committed, Stream
from tensorfold.domain.windows import Window, chain, tree

_LOGGED_FAULTS = 3

Planned = tuple[Window, str | None]


class Drafting:
    """Plans the windows of a round for the engine."""

    def __init__(
        self,
        model: TargetModel,
        settings: EngineSettings,
        curve: CostCurve,
        sources: Sequence[DraftSourceFactory],
        counters: Counters,
        log: Callable[[str], None],
        flight: Flight,
    ) -> None:
        self._model = model
        self._limits = model.limits
        self._settings = settings
        self._curve = curve
        self._factories = tuple(sources)
        self._counters = counters
        self._log = log
        self._widths = Widths(self._limits.chain_width, self._limits.tree_width)
        self._widest = max(self._limits.chain_width, self._limits.tree_width)
        self._heads = Heads(model, settings, curve, flight, counters, self._blame)

    def open(self, stream: Stream, extra: DraftSource | None = None) -> tuple[DraftSource, ...]:
        """The draft sources of one stream, `extra` among them; none where it must decode serially."""
        if not stream.drafts or not self._settings.drafts or self._widest < 2:
            return ()
        sources: list[DraftSource] = []
        for factory in self._factories:
            try:
                sources.append(factory.open(stream.prompt, self._widths))
            except Exception as fault:
                self._blame(type(factory).__name__, fault)
        return tuple(sources) if extra is None else (*sources, extra)

    # -- planning ------------------------------------------------------------------------------------------------

    def plan(self, served: Sequence[Live]) -> list[Planned]:
        """A window for each stream and the source its drafts came from."""
        offers = [self._offers(live) for live in served]
        heads = self._heads.ask(served, offers) if self._heads.can_draft else [None] * len(served)
        proposals = [self._best(*each) for each in zip(served, offers, heads, strict=True)]
        if any(proposals):
            try:
                granted = self._grant(served, proposals)
                return [self._window(live.stream, p, n) for live, p, n in zip(served, proposals, granted, strict=True)]
            except Exception as fault:
                self._blame("row allocation", fault)
        return [(self._bare(live.stream), None) for live in served]

    def fixed_rows(self, stream: Stream) -> int:
        """Rows a stream runs whatever is drafted: the pending token and as many fixed ones as a chain may hold."""
        return 1 + min(len(stream.forced), self._limits.chain_width - 1)

    def _bare(self, stream: Stream) -> Window:
        return chain(stream.pending, (), stream.forced[: self.fixed_rows(stream) - 1])

    def _grant(self, served: Sequence[Live], proposals: Sequence[Proposal | None]) -> Sequence[int]:
        """Draft rows for each stream: by expected tokens against measured cost, or all that fit when forced."""
        if self._settings.force_windows:
            return self._fit(served, proposals)
        requests = [
            RowRequest(self.fixed_rows(live.stream), p.chances if p is not None else ())
            for live, p in zip(served, proposals, strict=True)
        ]
        return allocate(
            requests, self._curve, batch_rows=self._limits.batch_rows, overhead_ms=self._settings.overhead_ms
        )

    def _fit(self, served: Sequence[Live], proposals: Sequence[Proposal | None]) -> list[int]:
        spare = self._limits.batch_rows - sum(self.fixed_rows(live.stream) for live in served)
        granted = []
        for proposal in proposals:
            rows = min(len(proposal.tokens) if proposal is not None else 0, spare)
            granted.append(rows)
            spare -= rows
        return granted

    def _window(self, stream: Stream, proposal: Proposal | None, rows: int) -> Planned:
        if proposal is None or rows <= 0:
            return self._bare(stream), None
        if proposal.parents is None:
            return chain(stream.pending, proposal.tokens[:rows], stream.forced), proposal.source
        window = tree(stream.pending, proposal.tokens[:rows], proposal.parents[:rows])
        # A tree of one branch is a chain, and chains have a width of their own.
        return window.truncated(self._limits.chain_width) if window.is_chain else window, proposal.source

    # -- proposing -----------------------------------------------------------------------------------------------

    def _offers(self, live: Live) -> list[Proposal]:
        """What the stream's own sources propose, each cut to what can be verified now."""
        stream, offers = live.stream, list[Proposal]()
        limit = self._limit(stream) if live.sources else 0
        if limit <= 0:
            return offers
        # What a gate has fixed will be fed before any draft, so sources continue behind it.
        tokens = [*stream.tokens, *stream.forced] if stream.forced else stream.tokens
        for source in live.sources:
            try:
                offer = source.propose(tokens, limit)
                if offer is not None and (offer := self._sound(offer, stream, limit)) is not None:
                    offers.append(offer)
            except Exception as fault:
                self._blame(source.name, fault)
        return offers

    def _best(self, live: Live, offers: list[Proposal], head: Proposal | None) -> Proposal | None:
        """One proposal out of all of a stream's, the head's among them."""
        limit = self._limit(live.stream)
        if head is not None:
            try:
                usable = self._sound(head, live.stream, limit)
                offers += [usable] if usable is not None else []
            except Exception as fault:
                self._blame(head.source, fault)
        return self._choose(offers, live.stream, limit) if len(offers) > 1 else next(iter(offers), None)

    def _limit(self, stream: Stream) -> int:
        """The most drafts that can be verified for a stream now."""
        limit = min(stream.room, self._widest) - 1 - len(stream.forced)
        return 0 if limit > 0 and self._past_draft_context(stream, limit) else limit

    def _choose(self, offers: Sequence[Proposal], stream: Stream, limit: int) -> Proposal | None:
        """The offer expected to land most, or all of them as one tree where that is expected to land more."""
        best = arbitrate([offer for offer in offers if not offer.graft])
        if self._limits.tree_width < 2 or stream.forced:
            return best
        merged = merge(offers, min(limit, self._limits.tree_width - 1))
        if merged is not None and merged.parents is None:  # of one branch, and chains have a width of their own
            merged = merged.first(self._limits.chain_width - 1)
        if best is None or (merged is not None and merged.expected > best.expected):
            return merged
        return best

    def _past_draft_context(self, stream: Stream, limit: int) -> bool:
        cap = self._limits.draft_context
        return bool(cap) and stream.absorbed + 1 + limit > cap

    def _sound(self, offer: Proposal, stream: Stream, limit: int) -> Proposal | None:
        """An offer without ids the model does not know and without rows it cannot verify; None when nothing is left."""
        if offer.parents is not None and (stream.forced or self._limits.tree_width < 2):
            offer = _first_branch(offer)
        width = self._limits.chain_width if offer.parents is None else self._limits.tree_width
        if any(type(token) is not int for token in offer.tokens):
            raise TypeError("a draft is not an int")
        usable = sound(offer, self._limits.vocabulary, min(limit, width - 1 - len(stream.forced)))
        if usable is None or stream.constraint is None:
            return usable
        # What the grammar rejects could not be drawn, so it is not worth a row.
        return usable.only(stream.constraint.fitting(stream.forced, usable.tokens, usable.parents))

    # -- after the round -----------------------------------------------------------------------------------------

    def observe(self, live: Live, source: str | None, drafted: int, committed: Committed) -> None:
        """Tell every source of a stream what was verified and what landed."""
        for each in live.sources:
            try:
                each.observe(source, drafted, committed.drafts_kept if source is not None else 0, live.stream.tokens)
            except Exception as fault:
                self._blame(each.name, fault)
        self._heads.observe(live, len(live.stream.tokens) - len(committed.tokens))

    def _blame(self, name: str, fault: Exception) -> None:
        self._counters.proposer_faults += 1
        if self._counters.proposer_faults <= _LOGGED_FAULTS:
            self._log(f"draft source {name} failed, this round goes without it: {named(fault)}")


def _first_branch(offer: Proposal) -> Proposal:
    """The branch of a tree that follows the first child of each row, as a chain."""
    assert offer.parents is not None
    tokens, chances, row = [], [], 0
    for index, parent in enumerate(offer.parents):
        if parent == row:
            tokens.append(offer.tokens[index])
            chances.append(offer.chances[index])
            row = index + 1
    return Proposal(offer.source, tuple(tokens), tuple(chances))
