"""What a round costs by its rows, in times of one row."""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.domain.drafting.costs import CostCurve

STATED = ((1, 1.0), (2, 1.05), (16, 1.05), (32, 1.4), (64, 2.6))


@dataclass(frozen=True, slots=True)
class Machine:
    """A model as the replay sees it: its curve, in times of one row, and the most rows it verifies at once."""

    name: str
    points: tuple[tuple[int, float], ...]
    chain: int
    tree: int

    @property
    def curve(self) -> CostCurve:
        """A curve of its own for each run."""
        return CostCurve(self.points)

    def words(self) -> str:
        """The curve in one line."""
        return ", ".join(f"{rows} rows {cost:.2f}" for rows, cost in self.points)


CHAINS = Machine("stated curve", STATED, 64, 1)
TREES = Machine("stated curve, trees", STATED, 64, 64)
