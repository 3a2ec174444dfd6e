"""Figures of a benchmark with what is least asked of them, and the words in which both are printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bound:
    """What a figure must reach: `least` or `most`; `aim` is where to stop trying. `unit` stands behind the number."""

    name: str
    least: float | None = None
    most: float | None = None
    aim: float | None = None
    unit: str = ""

    def met(self, value: float) -> bool:
        """Whether a value is enough."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def words(self, value: float | None) -> str:
        """The figure with its bounds."""
        wanted = [f"least {_short(self.least)}"] if self.least is not None else []
        wanted += [f"most {_short(self.most)}"] if self.most is not None else []
        wanted += [f"aim {_short(self.aim)}"] if self.aim is not None else []
        behind = f" ({', '.join(wanted)})" if wanted else ""
        shown = "not measured" if value is None else f"{_short(value)}{self.unit}"
        missed = "" if value is not None and self.met(value) else " MISSED"
        return f"{self.name} {shown}{behind}{missed}"


def judged(values: Mapping[str, float], bounds: Iterable[Bound]) -> tuple[str, bool]:
    """All bounds in words, and whether every one of them is met; what was not measured is not met."""
    bounds = tuple(bounds)
    met = all(bound.name in values and bound.met(values[bound.name]) for bound in bounds)
    return "; ".join(bound.words(values.get(bound.name)) for bound in bounds), met


def _short(value: float | None) -> str:
    if value is None:
        return "none"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
