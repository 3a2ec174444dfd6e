"""The model's draft head, asked for the streams of a round: how deep, whether it is worth its time, what it learned.

A head is a draft source like any other and trusted no further: what it raises costs its drafts for one round. Knows no
other source but the chances that the others offer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensorfold.application.counters import Counters
from tensorfold.application.flight import Flight
from tensorfold.application.live import Live
from tensorfold.application.ports.target_model import Chain, HeadLimits, Lattice, ProposeSpec, TargetModel
from tensorfold.application.settings import DraftSettings, EngineSettings
from tensorfold.domain.drafting.calibration import Calibration
from tensorfold.domain.drafting.costs import CostCurve
from tensorfold.domain.drafting.depth import DepthPolicy, DepthSettings
from tensorfold.domain.drafting.head_chains import chain_chances, confident
from tensorfold.domain.drafting.landed import decided
from tensorfold.domain.drafting.lattice import PUBLISHED, SearchSettings, search
from tensorfold.domain.drafting.sources import Proposal
from tensorfold.domain.drafting.sureness import Sureness

HEAD = "head"
_ONE_BRANCH = 1
_GUARDED = DepthSettings(plain_guard=True)

Blame = Callable[[str, Exception], None]


def most_drafts(head: HeadLimits, asked: DraftSettings) -> int:
    """The most drafts of a round: what the flag says, else what the family publishes, and no more than can be made.

    A block is made in one pass however much of it is asked for, so the flag is for heads that chain alone.
    """
    by_flag = None if head.kind == "lattice" else asked.mtp_drafts
    return min(head.drafts if by_flag is None else by_flag, head.most)


class Heads:
    """Asks the head of one model. Used by the engine thread alone."""

    def __init__(
        self,
        model: TargetModel,
        settings: EngineSettings,
        curve: CostCurve,
        flight: Flight,
        counters: Counters,
        blame: Blame,
    ) -> None:
        self._model = model
        self._limits = model.limits
        self._head = model.limits.head
        self._head_ms = model.costs.head_ms
        self._settings = settings
        self._curve = curve
        self._flight = flight
        self._counters = counters
        self._blame = blame
        self._calibration = Calibration()
        self._sureness = Sureness()
        self._deepest, self._least = 0, 0.0
        if self._head is not None and settings.drafts:
            least = settings.heads.mtp_confidence
            self._deepest = most_drafts(self._head, settings.heads)
            self._least = self._head.min_confidence if least is None else least

    @property
    def can_draft(self) -> bool:
        """Whether there is a head that may draft at all."""
        return self._deepest > 0

    def ask(self, served: Sequence[Live], others: Sequence[Sequence[Proposal]]) -> list[Proposal | None]:
        """The head's proposal for each stream; `others` are what the stream's other sources offer this round."""
        for live in served:
            live.head = live.lattice = None
        depths = [self._depth(live, offers) for live, offers in zip(served, others, strict=True)]
        proposals: list[Proposal | None] = [None] * len(served)
        asked = [index for index, depth in enumerate(depths) if depth > 0]
        if not asked:
            return proposals
        specs = [
            ProposeSpec(
                served[index].lane,
                served[index].stream.pending,
                depths[index],
                served[index].stream.sampling,
                self._least,
            )
            for index in asked
        ]
        began = self._flight.depart("head", len(asked) * self._cost(max(depths)))
        try:
            # A device may be drafting still: what does not hang on its answer is reckoned before it is waited for.
            tries = [self._is_try(served[index]) for index in asked]
            settings = self._search_settings()
            self._calibration.prepare()
            answers = self._model.propose(specs)
            for index, answer, is_try in zip(asked, answers, tries, strict=True):
                live = served[index]
                given = live.head = self._read(answer, live, settings)
                if given is not None and not is_try:
                    chances = self._calibration.chances(given.chances)
                    proposals[index] = Proposal(given.source, given.tokens, chances, given.parents, given.graft)
        except Exception as fault:
            self._blame(HEAD, fault)
        finally:
            self._counters.decode_s += self._flight.arrive() - began
        return proposals

    def observe(self, live: Live, before: int) -> None:
        """The stream's round is over; it had `before` tokens. Drafts that were not verified are learned from too."""
        head, live.head = live.head, None
        lattice, live.lattice = live.lattice, None
        if live.depth is None:
            return
        if head is None:
            live.depth.observe(0, 0)
            return
        try:
            tokens = live.stream.tokens[before:]
            if lattice is not None:
                self._sureness.observe(lattice, before - 1, live.stream.sampling, tokens)
            outcome = decided(head, tokens)
            told = [at for at, right in enumerate(outcome.landed) if right is not None]
            self._calibration.observe([head.chances[at] for at in told], [bool(outcome.landed[at]) for at in told])
            live.depth.observe(outcome.tried, outcome.kept)
        except Exception as fault:
            self._blame(HEAD, fault)

    # -- how deep ------------------------------------------------------------------------------------------------

    def _depth(self, live: Live, offers: Sequence[Proposal]) -> int:
        """How many drafts to ask for; 0 where the head cannot draft or its time buys less than it costs."""
        stream, most = live.stream, self._most(live)
        if most <= 0 or not stream.drafts or stream.forced or self._past_draft_context(live, most):
            return 0
        if self._settings.force_windows:
            return most
        if live.depth is None:
            live.depth = DepthPolicy(self._deepest, curve=self._curve, head_ms=self._times(), settings=_GUARDED)
        depth = live.depth.choose(most)
        if depth == 0 or not self._pays(live.depth, depth, offers):
            return 0
        return most if self._head is not None and self._head.kind == "lattice" else depth

    def _is_try(self, live: Live) -> bool:
        return live.depth is not None and live.depth.is_try(self._most(live))

    def _most(self, live: Live) -> int:
        """The most drafts that a stream has rows and room for."""
        room = min(live.stream.room, max(self._limits.chain_width, self._limits.tree_width)) - 1
        return min(self._deepest, room)

    def _past_draft_context(self, live: Live, most: int) -> bool:
        cap = self._limits.draft_context
        return bool(cap) and live.stream.absorbed + 1 + most > cap

    def _pays(self, policy: DepthPolicy, depth: int, offers: Sequence[Proposal]) -> bool:
        """Whether the head adds more to the best of the other offers than the time that it takes."""
        best = max((offer for offer in offers if not offer.graft), key=lambda offer: offer.expected, default=None)
        if best is None or not self._head_ms:
            return True
        own = sum(policy.chances(depth))
        # In one tree the head helps where the copy fails; where only one of them is verified, by being the better one.
        gain = (1.0 - best.chances[0]) * own if self._limits.tree_width > 1 else own - best.expected
        token_ms = (self._curve.ms(1 + len(best)) + self._settings.overhead_ms) / (1.0 + best.expected)
        return gain * token_ms > self._cost(depth)

    def _times(self) -> tuple[float, ...]:
        """The head's time by depth; a block's is the same however little of it is used."""
        if self._head is not None and self._head.kind == "lattice" and self._head_ms:
            return (self._head_ms[-1],) * self._deepest
        return self._head_ms

    def _cost(self, depth: int) -> float:
        times = self._times()
        return times[min(depth, len(times)) - 1] if times else 0.0

    # -- what came back ------------------------------------------------------------------------------------------

    def _search_settings(self) -> SearchSettings:
        return self._sureness.settings(PUBLISHED.branches if self._limits.tree_width > 1 else _ONE_BRANCH)

    def _read(self, answer: Chain | Lattice | None, live: Live, settings: SearchSettings) -> Proposal | None:
        """The answer as a proposal with the chances that the head itself gives."""
        if isinstance(answer, Lattice):
            width = self._limits.tree_width if self._limits.tree_width > 1 else self._limits.chain_width
            live.lattice = answer
            return search(answer, live.stream.absorbed, live.stream.sampling, width - 1, HEAD, settings)
        if answer is None or self._head is None:
            return None
        stay = confident(answer.confidence, self._least, whole_run=self._head.whole_run)
        tokens = answer.tokens[:stay]
        return Proposal(HEAD, tokens, chain_chances(answer.confidence[: len(tokens)])) if tokens else None
