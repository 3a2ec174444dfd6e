"""What a loader makes draft heads with: each a function of the model's assembly and decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.decoder import Decoder
from tensorfold.adapters.cuda.heads.mtp import MtpDrafts
from tensorfold.domain.families.plans import MtpHead

MakeHead = Callable[[Assembly, Decoder], Any]


def mtp_head(plan: MtpHead, *, graphs: bool = True) -> MakeHead:
    """Makes the model's own head; on a card its passes are graphs unless they are not wanted."""
    return lambda assembly, decoder: MtpDrafts(assembly, decoder, plan, graphs=graphs)
