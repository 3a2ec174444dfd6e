"""What the record's copies did so far, as plain values for whoever reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClassFigures:
    """Copies of one match class. `expected` is how many ids of a base window a next copy is expected to land."""

    match: str
    offers: int
    offered_tokens: int
    landed_tokens: int
    expected: float


@dataclass(frozen=True, slots=True)
class OfferFigures:
    """Copies verified so far, all streams: offers that landed nothing count as missed; probes are offers too."""

    offers: int = 0
    probes: int = 0
    offered_tokens: int = 0
    landed_tokens: int = 0
    missed_offers: int = 0
    classes: tuple[ClassFigures, ...] = ()
