"""A backend: what turns a described checkpoint into a running model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tensorfold.application.ports.checkpoints import CheckpointFacts
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.plans import DecoderPlan


class Backend(Protocol):
    """One of MLX or CUDA. `load` runs on the thread that will own the model."""

    @property
    def name(self) -> str:
        """`mlx` or `cuda`."""
        ...

    def missing(self) -> str | None:
        """None when the backend can run here; otherwise one sentence that names what to install."""
        ...

    def load(
        self,
        plan: DecoderPlan,
        bound: Mapping[str, Bound],
        facts: CheckpointFacts,
        *,
        name: str,
        context: int,
        max_streams: int,
        on_progress: Callable[[str], None],
    ) -> TargetModel:
        """Read the weights, check rows and measure costs. Raises RefusedError."""
        ...
