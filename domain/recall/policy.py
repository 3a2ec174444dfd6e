"""When a copy from the record is worth offering, as far as all streams of a server share it: rates, probes, counters.

Written by the engine's thread alone; other threads read finished figures, and emptying the record swaps everything for
a fresh ledger. Knows no ids and no streams.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.domain.recall.figures import ClassFigures, OfferFigures
from tensorfold.domain.recall.rates import NAMES, LandingRates


@dataclass(frozen=True, slots=True)
class OfferSettings:
    """Rules of offering.

    `base_drafts` is the first window (8 rows with the pending one), `resumed_drafts` the first one of a copy resumed
    after an edit, `widest_drafts` the last. `rest` rounds pass
    without asking after a copy that landed nothing. `own_drafts` is what a stream's own drafts are taken to land before
    any were seen, `own_rate` the weight of a new round. A probe is made at the `first_wait`th opportunity that was
    passed over, a wait that doubles up to `longest_wait` while probes miss. `misses` copies of one class in a row that
    land nothing close it. A graft is tried every round while grafts land, every `graft_every`th otherwise. At most
    `cursors` places are followed at once; `recency` is the weight of each next one in a vote, and a branch with
    `dominant` of the votes is not forked. After an edit a copy is looked for in `resync_rounds` rounds. `eager` offers
    whatever is found: for proofs, which want many hits and misses.
    """

    base_drafts: int = 7
    resumed_drafts: int = 31
    widest_drafts: int = 127
    rest: int = 4
    own_drafts: float = 0.0
    own_rate: float = 0.15
    first_wait: int = 8
    longest_wait: int = 512
    misses: int = 6
    graft_every: int = 8
    cursors: int = 8
    recency: float = 0.75
    dominant: float = 0.9
    resync_rounds: int = 16
    eager: bool = False


class Ledger:
    """What is known since the record was last empty. The engine's thread writes it; `figures` may be read anywhere."""

    def __init__(self, settings: OfferSettings) -> None:
        self._settings = settings
        self.rates = LandingRates(settings.misses)
        self._classes = tuple(ClassFigures(NAMES[kind], 0, 0, 0, self._expected(kind)) for kind in range(len(NAMES)))
        self._probes = 0
        self._missed = 0
        self._passed = 0
        self._wait = settings.first_wait

    @property
    def wait(self) -> int:
        """Opportunities from one probe to the next."""
        return self._wait

    def probe_due(self) -> bool:
        """Whether the next opportunity is to be offered whatever is expected of it."""
        return self._passed >= self._wait

    def passed_over(self) -> None:
        """A match was found, and nothing of it was verified: too little was expected, or its rows went elsewhere."""
        self._passed += 1

    def probe_began(self) -> None:
        """One stream makes the probe that was due, so that no other makes it too."""
        self._passed = 0

    def probe_unseen(self) -> None:
        """The probe was not verified: it says nothing, and the next opportunity is one."""
        self._passed = max(self._passed, self._wait)

    def probe_ended(self, worthwhile: bool) -> None:
        """The probe was verified; `worthwhile`: it landed at least one id, and no fewer than own drafts land."""
        settings = self._settings
        self._probes += 1
        self._wait = settings.first_wait if worthwhile else min(2 * self._wait, settings.longest_wait)

    def verified(self, kind: int, offered: int, landed: int, missed: bool, behind: int = 0) -> None:
        """Of a copy of a class `offered` ids were verified: `landed` were right, and the next was wrong if `missed`.

        `behind` ids of the copy had landed before.
        """
        self.rates.observe(kind, landed, missed, behind)
        before, classes = self._classes[kind], list(self._classes)
        classes[kind] = ClassFigures(
            before.match,
            before.offers + 1,
            before.offered_tokens + offered,
            before.landed_tokens + landed,
            self._expected(kind),
        )
        self._classes = tuple(classes)
        self._missed += missed and not landed

    def figures(self) -> OfferFigures:
        """The counts as they stand. Totals agree with the classes; probes and misses are never more than offers."""
        # Another thread may be between two writes: what is written last is read first.
        probes, missed, classes = self._probes, self._missed, self._classes
        return OfferFigures(
            offers=sum(c.offers for c in classes),
            probes=probes,
            offered_tokens=sum(c.offered_tokens for c in classes),
            landed_tokens=sum(c.landed_tokens for c in classes),
            missed_offers=missed,
            classes=classes,
        )

    def _expected(self, kind: int) -> float:
        return sum(self.rates.chances(kind, self._settings.base_drafts))


class OfferPolicy:
    """The rules and the present ledger, shared by the streams of one server."""

    def __init__(self, settings: OfferSettings | None = None) -> None:
        self.settings = settings or OfferSettings()
        self.ledger = Ledger(self.settings)

    def figures(self) -> OfferFigures:
        """What copies did so far; from any thread."""
        return self.ledger.figures()

    def reset(self) -> None:
        """Forget every rate and count; from any thread. What a running round still writes goes to the old ledger."""
        self.ledger = Ledger(self.settings)
