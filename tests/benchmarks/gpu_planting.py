"""Models on the card without a checkpoint: true geometry with planted weights, and tiny families with all their edges.

Loads through the CUDA backend's own loader; only the reader of weights is another one. Needs torch, Triton and a card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.engine_parts import EngineParts
from tensorfold.adapters.cuda.loader import assembled, checked, identity_of
from tensorfold.adapters.cuda.model import CudaModel
from tensorfold.adapters.cuda.products import Products
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.memory.cuda_holding import room
from tests.benchmarks.gpu_device import row_kernels
from tests.synthetic.true_models import TrueModel

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """What a model is loaded from: its plan and weights, and those of a drafter with a checkpoint of its own."""

    title: str
    plan: DecoderPlan
    weights: Any
    drafter: DFlashDrafter | None = None
    drafter_weights: Any = None

    @staticmethod
    def of(model: TrueModel) -> Source:
        """A model of true geometry."""
        return Source(model.title, model.plan, model.weights, model.drafter, model.drafter_weights)


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a model is loaded: streams, tokens a lane may hold, kept prompt ends, and whether rounds are captured."""

    streams: int = 1
    context: int = 4096
    kept: int = 0
    graphs: bool = True


def built(source: Source, wanted: Wanted, folder: Path, say: Say) -> EngineParts:
    """The decoder over its pools, on the card; compiled kernels are kept in `folder`."""
    device = torch.device("cuda")
    products = Products(source.weights, row_kernels(folder), device, say)
    pools = room(wanted.streams, wanted.context, wanted.kept)
    assembly = Assembly(source.weights, products, pools, device, torch.bfloat16, "bfloat16")
    return assembled(source.plan, assembly, None, graphs=wanted.graphs)


def started(parts: EngineParts, source: Source, wanted: Wanted, say: Say, *, measured: bool = True) -> CudaModel:
    """The model of some parts, its rows checked and its launches measured."""
    card = torch.cuda.get_device_name()
    identity = identity_of(source.title, "planted", f"torch {torch.__version__}", card, ())
    return checked(
        parts,
        identity=identity,
        context=wanted.context,
        max_streams=wanted.streams,
        say=say,
        measured=measured,
    )


@contextmanager
def loaded(source: Source, wanted: Wanted, folder: Path, say: Say) -> Iterator[CudaModel]:
    """A loaded and checked model, freed at the end."""
    model = started(built(source, wanted, folder, say), source, wanted, say)
    try:
        yield model
    finally:
        model.shutdown()
        del model
        torch.cuda.empty_cache()


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """A call that queues work, with the seconds between its first and its last kernel: host time is hidden.

    The card is kept busy meanwhile, so that everything is queued before the first kernel starts.
    """
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(20_000_000)
    first.record()
    result = run()
    last.record()
    last.synchronize()
    return result, first.elapsed_time(last) / 1e3
