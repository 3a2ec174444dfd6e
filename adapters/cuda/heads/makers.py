"""What a loader makes draft heads with: each a function of the model's assembly and decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.decoder import Decoder
from tensorfold.adapters.cuda.heads.dflash import BlockDrafts
from tensorfold.adapters.cuda.heads.mtp import MtpDrafts
from tensorfold.adapters.cuda.heads.narrow_weights import NarrowWeights
from tensorfold.domain.families.plans import DFlashDrafter, MtpHead

MakeHead = Callable[[Assembly, Decoder], Any]


def mtp_head(plan: MtpHead, *, graphs: bool = True) -> MakeHead:
    """Makes the model's own head; on a card its passes are graphs unless they are not wanted."""
    return lambda assembly, decoder: MtpDrafts(assembly, decoder, plan, graphs=graphs)


def block_head(plan: DFlashDrafter, weights: Any, name: str, bits: int, *, graphs: bool = True) -> MakeHead:
    """Makes the head of a drafter's checkpoint, read by `weights`; its matrices are rounded to `bits` (0: are not)."""

    def make(assembly: Assembly, decoder: Decoder) -> BlockDrafts:
        narrow = NarrowWeights(weights, bits, assembly.device)
        products = assembly.products
        made = products.beside(narrow)
        own = replace(assembly, weights=narrow, products=made, keyed=[], recurrent=[], order=[], entries=[])
        return BlockDrafts(own, assembly, decoder, plan, name, graphs=graphs)

    return make
