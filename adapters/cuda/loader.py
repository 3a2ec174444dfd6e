"""From a bound plan to a checked model on the card: weights, pools, the decoder, the load check, limits and costs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.decoder import Decoder, unbuilt
from tensorfold.adapters.cuda.engine_parts import EngineParts
from tensorfold.adapters.cuda.model import CudaModel
from tensorfold.adapters.cuda.row_check import RowCheck
from tensorfold.adapters.cuda.timings import measure
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.target_model import ModelCosts, ModelIdentity, ModelLimits
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.domain.sampling import RULE

Say = Callable[[str], None]
MakeHead = Callable[[Assembly, Decoder], Any]


def assembled(
    plan: DecoderPlan,
    assembly: Assembly,
    head: MakeHead | None,
    *,
    graphs: bool,
) -> EngineParts:
    """The decoder, all weights read, and its pools. Raises RefusedError for a plan without blocks here."""
    lacking = sorted(set(unbuilt(plan)))
    if lacking:
        raise RefusedError(f"The CUDA backend cannot build {', '.join(lacking)} yet, which {plan.model_type} needs.")
    decoder = Decoder(assembly, plan)
    return EngineParts(assembly, decoder, None if head is None else head(assembly, decoder), graphs=graphs)


def checked(
    parts: EngineParts, *, identity: ModelIdentity, context: int, max_streams: int, say: Say, measured: bool = True
) -> CudaModel:
    """The model, its rows checked and its launches measured."""
    plan = parts.decoder.plan
    limits = wanted_limits(plan, parts.room, context, max_streams, None if parts.head is None else parts.head.limits)
    costs = ModelCosts(((1, 1.0),), 1.0)
    probed = CudaModel(parts, identity, limits, costs)
    allowed = RowCheck(probed, say).run()
    limits = replace(
        limits,
        chain_width=allowed.chain,
        tree_width=allowed.tree,
        shares_rounds=allowed.shares,
        notes=tuple(allowed.notes),
    )
    if measured:
        say("measuring launches")
        costs = measure(CudaModel(parts, identity, limits, costs))
    return CudaModel(parts, identity, limits, costs)


def wanted_limits(plan: DecoderPlan, room: Room, context: int, max_streams: int, head: Any) -> ModelLimits:
    """The limits of a room, before anything was checked."""
    return ModelLimits(
        vocabulary=plan.head.vocabulary,
        context=context,
        chain_width=room.width,
        tree_width=min(plan.tree_window, 16, room.width),
        max_streams=max_streams,
        batch_rows=room.rows,
        shares_rounds=True,
        resume="prompt_end",
        prefill_slice=0,
        sampler_rule=RULE,
        head=head,
    )


def sources_digest() -> str:
    """SHA-256 over the source files that decide a row's bits: this adapter's and the kernels' it calls."""
    here = Path(__file__).resolve().parent
    kernels = here.parent.parent / "kernels"
    digest = hashlib.sha256()
    for root in (here, kernels / "triton", kernels / "cuda"):
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.cu")]):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def identity_of(
    name: str, weights: str, runtime: str, device: str, extra: tuple[tuple[str, str], ...]
) -> ModelIdentity:
    """What replies are exact against."""
    return ModelIdentity(
        name=name,
        weights=weights,
        runtime=runtime,
        device=device,
        kernels=sources_digest(),
        sampler_rule=RULE,
        extra=extra,
    )
