"""What one loaded model takes of a budget: weights, lanes by their length, and the work of a pass. Arithmetic only.

`MemoryPlan` is what windows, admission and the gate reckon with; it is made before a weight is read and never asks how
much memory is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.domain.memory.budgets import Budget
from tensorfold.domain.memory.cuda_holding import PoolSizes
from tensorfold.domain.memory.state_profile import StateProfile
from tensorfold.domain.memory.work import Work


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a backend holds of a model: bytes of all weights, the profile of a lane, the work of a pass.

    `rows` are those of the widest pass. A backend that allocates lanes in pools states their sizes in `pools`: a lane
    is then its pages alone, and what else pools hold counts as work. `staging` bytes are taken while weights are read,
    of the card and of the machine each; `host` are what a load adds at most to what the process holds of the machine.
    """

    weights: int
    state: StateProfile
    work: Work
    rows: int
    pools: PoolSizes | None = None
    staging: int = 0
    host: int = 0


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """A budget, and a model's footprint in it."""

    budget: Budget
    footprint: Footprint

    @property
    def room(self) -> int:
        """Bytes for lanes and work beside the weights; below 0 where the weights alone are too much."""
        return self.budget.allocator - self.footprint.weights

    def lane(self, tokens: int, capacity: int) -> int:
        """Bytes of a lane that holds `tokens` of at most `capacity`."""
        return self.footprint.state.held(tokens, capacity)

    def work(self, tokens: int) -> int:
        """Bytes of a pass over lanes of at most `tokens`, buffers that grow meanwhile among them."""
        return self.footprint.work.bytes_for(self.footprint.rows, tokens) + self.footprint.state.growth(tokens)

    def request(self, tokens: int, copies: int = 1) -> int:
        """Bytes of one request of `tokens` in all and its pass; with 2 `copies` its state is retained beside it."""
        return copies * self.lane(tokens, tokens) + self.work(tokens)

    def fits(self, tokens: int, copies: int = 1) -> bool:
        """Whether one request of `tokens` fits beside the weights."""
        return self.request(tokens, copies) <= self.room

    def largest(self, most: int, copies: int = 1) -> int:
        """The largest request of at most `most` tokens that fits; 0 when none does."""
        return largest(lambda tokens: self.fits(tokens, copies), most)


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest n from 1 to `most` that fits, 0 when none does. Nothing larger than what does not fit may fit."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
