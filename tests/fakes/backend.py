"""A backend whose models are already there: what it loads is what the test gave it."""

from __future__ import annotations

from collections.abc import Callable

from tensorfold.application.ports.backend import DrafterCheckpoint, ModelCheckpoint
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.machine import MemoryRuntime
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.settings import DraftSettings
from tensorfold.domain.memory.budgets import Machine
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.domain.memory.mlx_holding import footprint
from tensorfold.domain.memory.plan import Footprint
from tests.fakes.machine import FakeMemory


class FakeBackend:
    """`make(context, max_streams)` builds the model; `absent` is the sentence of a backend that cannot run here."""

    def __init__(
        self, make: Callable[[int, int], TargetModel], *, name: str = "mlx", absent: str | None = None
    ) -> None:
        self._make = make
        self._name = name
        self.absent = absent
        self.loaded: list[str] = []
        self.ram = 64 << 30
        self.runtime = FakeMemory(binds=False)
        self.drafts: list[tuple[DraftSettings, DrafterCheckpoint | None]] = []

    @property
    def name(self) -> str:
        """As constructed."""
        return self._name

    def missing(self) -> str | None:
        """As set."""
        return self.absent

    def machine(self) -> Machine:
        """As set."""
        return Machine(self.ram)

    def memory(self) -> MemoryRuntime:
        """Numbers alone."""
        return self.runtime

    def footprint(self, checkpoint: ModelCheckpoint) -> Footprint:
        """The plan's state, and the file's bytes."""
        return footprint(checkpoint.plan, checkpoint.facts.weight_bytes, cpu=True, head=False)

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
        """The model that `make` builds; no weight is read."""
        if self.absent is not None:
            raise RefusedError(self.absent)
        on_progress(f"loading {name}")
        self.loaded.append(name)
        self.drafts.append((checkpoint.drafts, checkpoint.drafter))
        return self._make(context, max_streams)
