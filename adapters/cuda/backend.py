"""The CUDA backend's front door: is a card here, what would a model hold, and from a checkpoint to a running model.

Imports torch only when a figure of the card is asked for or a model is loaded. Nothing is printed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tensorfold.adapters.cuda.memory import CudaMemory, machine
from tensorfold.adapters.cuda.runtime import missing
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.machine import MemoryRuntime
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.domain.memory.budgets import Machine
from tensorfold.domain.memory.cuda_footprint import cuda_footprint
from tensorfold.domain.memory.cuda_holding import Room, room
from tensorfold.domain.memory.plan import Footprint


class CudaBackend:
    """A `Backend`; compiled kernels are kept below `cache`. Rows are checked anew at every load."""

    name = "cuda"

    def __init__(self, cache: Path) -> None:
        self._cache = cache

    def missing(self) -> str | None:
        """None when a card can be used here; otherwise one sentence that names what to install or change."""
        return missing()

    def machine(self) -> Machine:
        """RAM, and what of the card and of RAM is free now."""
        return machine()

    def memory(self) -> MemoryRuntime:
        """Torch's allocator."""
        return CudaMemory()

    def footprint(self, checkpoint: ModelCheckpoint) -> Footprint:
        """What `load` would hold, reckoned from headers."""
        drafts, drafter = checkpoint.drafts, checkpoint.drafter
        return cuda_footprint(
            checkpoint.plan,
            checkpoint.bound,
            head=drafter is None and drafts.mtp_drafts != 0,
            drafter=None if drafter is None else drafter.plan,
            drafter_bits=drafts.drafter_bits,
        )

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
        from tensorfold.adapters.cuda.loader import load

        pools = pools or room(max_streams, context)
        return load(checkpoint, name=name, context=context, pools=pools, cache=self._cache, on_progress=on_progress)
