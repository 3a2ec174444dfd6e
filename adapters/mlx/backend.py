"""The MLX backend's front door: is MLX here, and from a described checkpoint to a checked, running model.

Imports MLX only when it is asked to load. Nothing is printed: progress goes line by line to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tensorfold.adapters.mlx.memory import MlxMemory, held, machine
from tensorfold.adapters.mlx.runtime import current, missing
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.machine import MemoryRuntime
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.domain.memory.budgets import Machine
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.domain.memory.plan import Footprint


class MlxBackend:
    """A `Backend`; load checks are remembered below `cache`."""

    name = "mlx"

    def __init__(self, cache: Path) -> None:
        self._cache = cache

    def missing(self) -> str | None:
        """None when MLX can run here; otherwise one sentence that names what to install."""
        return missing()

    def machine(self) -> Machine:
        """RAM, and the GPU's recommended working set where there is one."""
        return machine(cpu=current().cpu)

    def memory(self) -> MemoryRuntime:
        """MLX's allocator."""
        return MlxMemory(cpu=current().cpu)

    def footprint(self, checkpoint: ModelCheckpoint) -> Footprint:
        """What `load` would hold, reckoned from headers."""
        return held(checkpoint, current())

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
        """Read the weights and those of the draft head, check rows and measure costs. Raises RefusedError."""
        sentence = missing()
        if sentence is not None:
            raise RefusedError(sentence)
        from tensorfold.adapters.mlx.loader import Loading

        loading = Loading(checkpoint, current(), on_progress)
        return loading.model(self._cache / "checks", name=name, context=context, max_streams=max_streams)
