"""A plan and its weights become a running decoder: layers of blocks over a residual.

Knows no lane, ticket or request. Ops without a builder are refused by name before any of their weights is read.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.embedding import EmbeddingBlock
from tensorfold.adapters.mlx.blocks.head import HeadBlock
from tensorfold.adapters.mlx.blocks.readout import ReadoutBlock
from tensorfold.adapters.mlx.builders import refuse_unbuilt
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.states import LayerState
from tensorfold.adapters.mlx.sublayers import SublayerBlock, build_layers
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.state import StateEntry

A = TypeVar("A")


class Decoder(Generic[A]):
    """Rows through all layers, and logits of some of them."""

    def __init__(self, ops: RowOps[A], plan: DecoderPlan, weights: WeightReader) -> None:
        self.ops, self.plan = ops, plan
        refuse_unbuilt(plan)
        assembly = Assembly(ops, weights, plan.width, plan.streams)
        table = weights.matrix("embedding")
        self.embedding = EmbeddingBlock(ops, plan.embedding, table)
        self.head = HeadBlock(ops, plan.head, table if plan.head.tied else weights.matrix("head"))
        self.readout = ReadoutBlock(assembly, plan.readout, "readout")
        self.layers = build_layers(assembly, plan.layers, "layers")
        self._stateful = assembly.stateful

    @property
    def sublayers(self) -> list[SublayerBlock[A]]:
        """Every sublayer, in order."""
        return [sublayer for layer in self.layers for sublayer in layer]

    @property
    def entries(self) -> tuple[tuple[StateEntry, ...], ...]:
        """What each of a lane's states holds, in the rows' dtype."""
        return tuple(entries for _, entries in self._stateful)

    def states(self, capacity: int) -> tuple[LayerState[A], ...]:
        """Empty state of a lane, in the order of the plan's `state_spec`."""
        return tuple(block.state(capacity) for block, _ in self._stateful)

    def hidden(self, context: RowContext[A], taps: Collection[int] = ()) -> tuple[A, dict[int, A]]:
        """The residual behind the last layer and behind each layer count in `taps`; states hold rows provisionally."""
        stream = self.streams(self.embedding(context.ids))
        tapped = {0: stream} if 0 in taps else {}
        for index, layer in enumerate(self.layers, start=1):
            for sublayer in layer:
                stream = sublayer(stream, context)
            if index in taps:
                tapped[index] = stream
        return stream, tapped

    def streams(self, rows: A) -> A:
        """The residual that begins as `rows`: as many copies side by side as there are streams."""
        count = self.plan.streams
        made: A = rows if count == 1 else self.ops.xp.concatenate([rows] * count, axis=-1)
        return made

    def logits(self, stream: A, drawn: Sequence[int]) -> A:
        """Logits of the rows at `drawn`, on the device."""
        return self.head(self.readout(self.ops.pick(stream, drawn)))

    def host(self, logits: A) -> NDArray[np.float32]:
        """Wait for logits [R, V]."""
        return self.head.host(logits)
