"""What turns the residual into the head's input: a norm, the mean of the streams and a norm, or a learnt mixture."""

from __future__ import annotations

from typing import Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.norm import norm_block
from tensorfold.adapters.mlx.blocks.residual import LowRankMixer, stream_mean
from tensorfold.domain.families.plans import Readout

A = TypeVar("A")


class ReadoutBlock(Generic[A]):
    """Rows [R, streams * D] of the residual to [R, D]."""

    def __init__(self, assembly: Assembly[A], plan: Readout, path: str) -> None:
        self._ops, self._plan, self._streams = assembly.ops, plan, assembly.streams
        self._norm = norm_block(assembly, plan.norm, f"{path}.norm")
        self._mixer: LowRankMixer[A] | None = None
        if plan.form == "hyper_mixer":
            assert plan.mixer is not None
            self._mixer = LowRankMixer(assembly, plan.mixer, f"{path}.mixer", writes=False)

    def __call__(self, stream: A) -> A:
        """Rows [R, D] of the residual."""
        rows = stream
        if self._mixer is not None:
            rows, _ = self._mixer.read(stream)
        elif self._plan.form == "stream_mean_norm":
            rows = stream_mean(self._ops, stream, self._streams)
        return rows if self._norm is None else self._norm(rows)
