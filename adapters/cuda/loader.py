"""From a bound plan to a checked model on the card: weights, pools, the decoder, the load check, limits and costs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.decoder import Decoder, unbuilt
from tensorfold.adapters.cuda.engine_parts import EngineParts
from tensorfold.adapters.cuda.heads.makers import block_head, mtp_head
from tensorfold.adapters.cuda.model import CudaModel
from tensorfold.adapters.cuda.packed import refuse_unread
from tensorfold.adapters.cuda.passes import counts
from tensorfold.adapters.cuda.products import Products
from tensorfold.adapters.cuda.row_check import RowCheck
from tensorfold.adapters.cuda.runtime import current
from tensorfold.adapters.cuda.timings import measure
from tensorfold.adapters.cuda.weights import WeightReader
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.target_model import ModelCosts, ModelIdentity, ModelLimits
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.domain.sampling import RULE
from tensorfold.kernels.cuda.affine_rows import RowKernels
from tensorfold.kernels.cuda.compiler import CompilerError, CompilerMissingError
from tensorfold.kernels.cuda.delta_steps import DeltaKernels
from tensorfold.kernels.cuda.driver import DriverError, current_device

Say = Callable[[str], None]
MakeHead = Callable[[Assembly, Decoder], Any]


def refuse_unbuilt(plan: DecoderPlan) -> None:
    """Raise RefusedError for a plan with ops that have no block here."""
    lacking = sorted(set(unbuilt(plan)))
    if lacking:
        raise RefusedError(f"The CUDA backend cannot build {', '.join(lacking)} yet, which {plan.model_type} needs.")


def assembled(
    plan: DecoderPlan,
    assembly: Assembly,
    head: MakeHead | None,
    *,
    graphs: bool,
) -> EngineParts:
    """The decoder, all weights read, and its pools. Raises RefusedError for a plan without blocks here."""
    refuse_unbuilt(plan)
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
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.cu"), *root.rglob("*.cuh")]):
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


@dataclass(frozen=True, slots=True)
class Stored:
    """What is loaded: a plan, the reader of its slots, and the digest that names the weights.

    `head` makes its draft head, None where nothing but copies drafts.
    """

    plan: DecoderPlan
    weights: Any
    digest: str
    head: MakeHead | None = None


def load(
    checkpoint: ModelCheckpoint, *, name: str, context: int, pools: Room, cache: Path, on_progress: Say
) -> CudaModel:
    """The model of a checkpoint, on the card that torch sees first. Raises RefusedError."""
    plan, bound, facts = checkpoint.plan, checkpoint.bound, checkpoint.facts
    refuse_unbuilt(plan)
    refuse_unread(bound)
    weights = WeightReader(bound, facts, on_progress, plan.tensors.probes)
    stored = Stored(plan, weights, facts.digest, _head(checkpoint, weights, on_progress))
    return load_stored(stored, name=name, context=context, pools=pools, cache=cache, on_progress=on_progress)


def load_stored(
    stored: Stored,
    *,
    name: str,
    context: int,
    pools: Room,
    cache: Path,
    on_progress: Say,
    graphs: bool = True,
    measured: bool = True,
) -> CudaModel:
    """The model of any reader of slots."""
    runtime = current()
    device = torch.device("cuda", torch.cuda.current_device())
    torch.zeros(1, device=device)  # makes a context current, which the driver's calls need
    card, cubins = current_device(), cache / "cubins"
    rows, delta = RowKernels(card, cubins, on_progress), DeltaKernels(card, cubins, on_progress)
    products = Products(stored.weights, rows, device, on_progress)
    products.launched_with(counts(pools))
    assembly = Assembly(stored.weights, products, pools, device, torch.bfloat16, "bfloat16", delta)
    with compiling((rows, delta), on_progress):
        parts = assembled(stored.plan, assembly, stored.head, graphs=graphs)
    identity = identity_of(name, stored.digest, runtime.version, runtime.device, (("rows", "bfloat16"),))
    streams = pools.lanes - 1
    return checked(parts, identity=identity, context=context, max_streams=streams, say=on_progress, measured=measured)


class Compiled(Protocol):
    """Kernels of a kind that compile beside their caller: `RowKernels`, `DeltaKernels`."""

    def make_expected(self) -> None:
        """Wait for what is compiling. Raises CompilerError, CompilerMissingError and DriverError."""
        ...

    def close(self) -> None:
        """Compile nothing further in threads."""
        ...


@contextmanager
def compiling(kernels: Sequence[Compiled], say: Say) -> Iterator[None]:
    """What is expected meanwhile is compiled beside it, and has been made behind it. Raises RefusedError.

    The compiler's own words are told before the refusal, in lines of their own.
    """
    try:
        yield
        for each in kernels:
            each.make_expected()
    except CompilerMissingError as missing:
        raise RefusedError(f"The CUDA backend cannot compile its kernels: {missing}.") from None
    except CompilerError as fault:
        for line in fault.log.splitlines():
            say(line)
        raise RefusedError(
            f"{fault}, without which the model cannot run: install the version of nvidia-cuda-nvrtc that TensorFold "
            "asks for."
        ) from None
    except DriverError as fault:
        raise RefusedError(
            f"The driver does not take a compiled kernel ({fault}): install a driver that is as new as the CUDA "
            "version that torch was built with."
        ) from None
    finally:
        for each in kernels:
            each.close()


def _head(checkpoint: ModelCheckpoint, weights: WeightReader, say: Say) -> MakeHead | None:
    """The drafter where there is one, else the model's own head where it is stored and wanted."""
    plan, drafts, drafter = checkpoint.plan, checkpoint.drafts, checkpoint.drafter
    if drafter is not None:
        own = WeightReader(drafter.bound, drafter.facts, say)
        return block_head(drafter.plan, own, drafter.name, drafts.drafter_bits)
    if plan.mtp is None or drafts.mtp_drafts == 0 or not weights.has_below("mtp."):
        return None
    return mtp_head(plan.mtp)
