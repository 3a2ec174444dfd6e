"""One pass of a block drafter: blocks of masked positions behind all that their lanes hold, filled in and told of.

Blocks may be filled in before it is known how many rows of a launch stand, and moved behind these on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.heads.block_layer import BlockRows
from tensorfold.adapters.cuda.heads.blocks import IntBlock, Reading
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.kernels.triton.draft_ahead import start_blocks

if TYPE_CHECKING:
    from tensorfold.adapters.cuda.heads.block_lane import BlockLane
    from tensorfold.adapters.cuda.heads.dflash import BlockDrafts

LENGTHS = (8, 16)
"""Rows of a block, the pending token's among them: so few that every pass is compiled and captured once."""


def length_for(depth: int) -> int:
    """The block that makes so many drafts."""
    return next(length for length in LENGTHS if depth < length)


class BlockPass:
    """The pass of B blocks of L rows, the pending token's among them."""

    def __init__(self, head: BlockDrafts, blocks: int, length: int) -> None:
        self._head, self._shape = head, (blocks, length)
        shapes = {
            "ids": (blocks * length,), "positions": (blocks * length,), "lanes": (blocks,), "starts": (blocks,),
            "pending": (blocks,),
        }  # fmt: skip
        self._block = IntBlock(shapes, head.device)
        fields = self._block.device
        self._rows = BlockRows(length, fields["positions"], fields["lanes"], fields["starts"])
        self._told = torch.zeros(head.block_pass_shape(blocks, length), dtype=torch.float32, device=head.device)

    def fill(self, asked: Sequence[tuple[BlockLane, int]]) -> None:
        """Blocks behind all that lanes hold, each with its pending token."""
        blocks, length = self._shape
        fields = self._block.host()
        ids, positions = fields["ids"].reshape(blocks, length), fields["positions"].reshape(blocks, length)
        ids[:] = self._head.mask_token
        fields["pending"][:] = fields["starts"][:] = 0
        fields["lanes"][:] = self._head.rings.nobody
        for at, (lane, pending) in enumerate(asked):
            ids[at, 0] = fields["pending"][at] = pending
            fields["lanes"][at], fields["starts"][at] = lane.ring, lane.length
        positions[:] = fields["starts"][:, None] + np.arange(length, dtype=np.int32)
        self._block.send()

    def follow(self, kept: Tensor, facts: Tensor, lanes: int) -> None:
        """Move blocks that were filled behind the rows of a launch that stand."""
        at = self._block.device
        start_blocks(kept, facts, lanes, at["ids"], at["positions"], at["starts"], at["pending"])

    def told(self) -> Reading:
        """Queue the pass; what the selector tells of each block, float32 [B, L - 1, numbers]."""
        at = self._block.device
        self._head.graphs.run(
            ("block", *self._shape), lambda: self._head.draft(self._rows, at["ids"], at["pending"], self._told)
        )
        return Reading(self._told)
