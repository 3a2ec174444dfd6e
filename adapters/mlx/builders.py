"""Which block is built for which op: one entry for each op of the plan types that this backend can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly, Block
from tensorfold.adapters.mlx.blocks.attention import AttentionBlock
from tensorfold.adapters.mlx.blocks.experts import ExpertsBlock
from tensorfold.adapters.mlx.blocks.feed_forward import FeedForwardBlock
from tensorfold.adapters.mlx.blocks.gated_delta import GatedDeltaBlock
from tensorfold.adapters.mlx.blocks.indexed_attention import IndexedAttentionBlock
from tensorfold.adapters.mlx.blocks.kimi_delta import KimiDeltaBlock
from tensorfold.adapters.mlx.blocks.latent_attention import LatentAttentionBlock
from tensorfold.adapters.mlx.blocks.mamba2 import Mamba2Block
from tensorfold.adapters.mlx.blocks.ngram import HashedNgramBlock
from tensorfold.adapters.mlx.blocks.swiglu import SwigluBlock
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import (
    Attention,
    FeedForward,
    GatedDelta,
    HashedNgram,
    IndexedAttention,
    KimiDelta,
    LatentAttention,
    Mamba2,
    MixtureOfExperts,
    Op,
    SwiGLU,
)
from tensorfold.domain.families.plans import DecoderPlan, Layer, Parallel

A = TypeVar("A")
Build = Callable[[Assembly[Any], Any, str], Block[Any]]
BUILDERS: dict[type, Build] = {
    Attention: AttentionBlock,
    FeedForward: FeedForwardBlock,
    GatedDelta: GatedDeltaBlock,
    HashedNgram: HashedNgramBlock,
    IndexedAttention: IndexedAttentionBlock,
    KimiDelta: KimiDeltaBlock,
    LatentAttention: LatentAttentionBlock,
    Mamba2: Mamba2Block,
    MixtureOfExperts: ExpertsBlock,
    SwiGLU: SwigluBlock,
}


def build(assembly: Assembly[A], op: Op, path: str) -> Block[A]:
    """The block of an op."""
    return BUILDERS[type(op)](assembly, op, path)


def refuse_unbuilt(plan: DecoderPlan) -> None:
    """Raise RefusedError for an op that has no builder here."""
    heads = plan.mtp.layers if plan.mtp is not None else ()
    missing = sorted({type(op).__name__ for op in _ops((*plan.layers, *heads)) if type(op) not in BUILDERS})
    if missing:
        raise RefusedError(f"The MLX backend cannot build {', '.join(missing)} yet, which {plan.model_type} needs.")


def _ops(layers: tuple[Layer, ...]) -> Iterator[Op]:
    for layer in layers:
        for sublayer in layer:
            if isinstance(sublayer.op, Parallel):
                yield from (branch.op for branch in sublayer.op.branches)
            else:
                yield sublayer.op
