"""A backend: what turns a described checkpoint, and a drafter's beside it, into a running model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tensorfold.application.ports.checkpoints import CheckpointFacts
from tensorfold.application.ports.machine import MemoryRuntime
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.settings import PUBLISHED, DraftSettings
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.memory.budgets import Machine
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.domain.memory.plan import Footprint


@dataclass(frozen=True, slots=True)
class DrafterCheckpoint:
    """A draft model whose files are sound and fit its target: no weight of it has been read.

    `name` is the repository or folder that it came from.
    """

    name: str
    plan: DFlashDrafter
    bound: Mapping[str, Bound]
    facts: CheckpointFacts


@dataclass(frozen=True, slots=True)
class ModelCheckpoint:
    """A model whose files are sound, and what is to draft for it: no weight of it has been read.

    Of `drafts` a backend needs `drafter_bits`, and `mtp_drafts` where it is 0: a head that drafts nothing is not
    loaded. Where there is both a `drafter` and a head of the model's own, the drafter drafts.
    """

    plan: DecoderPlan
    bound: Mapping[str, Bound]
    facts: CheckpointFacts
    drafts: DraftSettings = PUBLISHED
    drafter: DrafterCheckpoint | None = None


class Backend(Protocol):
    """One of MLX or CUDA. `load` runs on the thread that will own the model."""

    @property
    def name(self) -> str:
        """`mlx` or `cuda`."""
        ...

    def missing(self) -> str | None:
        """None when the backend can run here; otherwise one sentence that names what to install."""
        ...

    def machine(self) -> Machine:
        """The memory of the machine and of its device."""
        ...

    def memory(self) -> MemoryRuntime:
        """The allocator's figures."""
        ...

    def footprint(self, checkpoint: ModelCheckpoint) -> Footprint:
        """What `load` would hold of a model: weights, lanes, work. From headers alone; the same on every start."""
        ...

    def load(
        self,
        checkpoint: ModelCheckpoint,
        *,
        name: str,
        context: int,
        max_streams: int,
        on_progress: Callable[[str], None],
        pools: Room | None = None,
    ) -> TargetModel:
        """Read the weights, check rows and measure costs. Raises RefusedError.

        `pools` are the sizes of pools that a backend allocates at once, as memory was planned for them; one whose lanes
        grow by themselves has no use for them.
        """
        ...
