"""Models on the card without a checkpoint: true geometry with planted weights, and tiny families with all their edges.

Loads through the CUDA backend's own loader; only the reader of weights is another one. Needs torch, Triton and a card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tensorfold.adapters.cuda.engine_parts import EngineParts
from tensorfold.adapters.cuda.loader import Stored, load_stored
from tensorfold.adapters.cuda.model import CudaModel
from tensorfold.domain.memory.cuda_holding import Room, room
from tests.benchmarks.gpu_heads import head_of
from tests.benchmarks.gpu_proof import FaultyDecoder
from tests.synthetic.true_models import TrueModel, true_model

Say = Callable[[str], None]
_SPIN = 20_000_000
"""Cycles for which the card is kept busy while a timed call queues its work: some ten milliseconds."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How a model is loaded: streams, tokens of a lane, kept prompt ends, or the pools that follow from a plan."""

    streams: int = 1
    context: int = 4096
    kept: int = 0
    head: bool = True
    graphs: bool = True
    pools: Room | None = None

    def room(self) -> Room:
        """The pools."""
        return self.pools if self.pools is not None else room(self.streams, self.context, self.kept)


@contextmanager
def true(name: str, wanted: Wanted, folder: Path, say: Say) -> Iterator[CudaModel]:
    """A loaded and checked model of true geometry, freed at the end."""
    source = true_model(name)
    with loaded(of(source, wanted), source.title, wanted, folder, say) as model:
        yield model


def of(source: TrueModel, wanted: Wanted) -> Stored:
    """What the loader takes of a model of true geometry."""
    head = head_of(source.plan, source.weights, source.drafter, source.drafter_weights) if wanted.head else None
    return Stored(source.plan, source.weights, "planted", head)


@contextmanager
def loaded(stored: Stored, name: str, wanted: Wanted, folder: Path, say: Say) -> Iterator[CudaModel]:
    """A loaded and checked model; compiled kernels are kept in `folder`."""
    model = load_stored(
        stored,
        name=name,
        context=wanted.context,
        pools=wanted.room(),
        cache=folder,
        on_progress=say,
        graphs=wanted.graphs,
    )
    try:
        yield model
    finally:
        model.shutdown()
        del model
        torch.cuda.empty_cache()


def unhurried(model: CudaModel) -> CudaModel:
    """The same model without rounds queued ahead; one of the two may have lanes at a time."""
    return CudaModel(model.parts, model.identity, model.limits, model.costs, looks_ahead=False)


def headless(model: CudaModel) -> CudaModel:
    """The same weights and pools without the draft head."""
    return _twin(model, model.parts.decoder, graphs=model.parts.graphs)


def eager(model: CudaModel) -> CudaModel:
    """The same weights and pools without graphs; one of the two may have lanes at a time."""
    return _twin(model, model.parts.decoder, graphs=False)


def faulty(model: CudaModel, fault: str) -> CudaModel:
    """The same weights and pools with a fault planted behind the load check."""
    return _twin(model, FaultyDecoder(model.parts.decoder, fault), graphs=True)


def _twin(model: CudaModel, decoder: Any, *, graphs: bool) -> CudaModel:
    parts = model.parts
    other = EngineParts(parts.assembly, decoder, None, graphs=graphs)
    return CudaModel(other, model.identity, replace(model.limits, head=None), model.costs)


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """A call that queues work, with the seconds between its first and its last kernel: host time is hidden.

    The card is kept busy meanwhile, so that everything is queued before the first kernel starts.
    """
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(_SPIN)
    first.record()
    result = run()
    last.record()
    last.synchronize()
    return result, first.elapsed_time(last) / 1e3
