"""Which block is built for which op: one entry for each op of the plan types that this backend can run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorfold.adapters.cuda.assembly import Assembly, Block
from tensorfold.adapters.cuda.blocks.attention import AttentionBlock
from tensorfold.adapters.cuda.blocks.experts import ExpertsBlock
from tensorfold.adapters.cuda.blocks.feed_forward import FeedForwardBlock
from tensorfold.adapters.cuda.blocks.gated_delta import GatedDeltaBlock
from tensorfold.adapters.cuda.blocks.mamba2 import Mamba2Block
from tensorfold.adapters.cuda.blocks.swiglu import SwigluBlock
from tensorfold.domain.families.ops import Attention, FeedForward, GatedDelta, Mamba2, MixtureOfExperts, Op, SwiGLU

BUILDERS: dict[type, Callable[[Assembly, Any, str], Block]] = {
    Attention: AttentionBlock,
    FeedForward: FeedForwardBlock,
    GatedDelta: GatedDeltaBlock,
    Mamba2: Mamba2Block,
    MixtureOfExperts: ExpertsBlock,
    SwiGLU: SwigluBlock,
}


def build(assembly: Assembly, op: Op, path: str) -> Block:
    """The block of an op."""
    return BUILDERS[type(op)](assembly, op, path)
