"""Tiny checkpoints of the families as CUDA models: on a card where there is one, else on the CPU.

There Triton's interpreter runs the kernels in float32, and products are the host's; the process must have been started
with TRITON_INTERPRET=1, since the choice is made when Triton is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.engine_parts import EngineParts
from tensorfold.adapters.cuda.loader import MakeHead, assembled, identity_of, wanted_limits
from tensorfold.adapters.cuda.model import CudaModel
from tensorfold.adapters.cuda.products import Products
from tensorfold.adapters.cuda.weights import WeightReader
from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.ports.target_model import ModelCosts
from tensorfold.domain.families import llama
from tensorfold.domain.families.binding import resolve
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.storage import parse_quantization
from tensorfold.domain.memory.cuda_holding import Room, room
from tensorfold.kernels.cuda.affine_rows import RowKernels
from tensorfold.kernels.cuda.delta_steps import DeltaKernels
from tensorfold.kernels.cuda.driver import current_device
from tests.adapters.cuda.host_delta import HostDelta
from tests.adapters.cuda.host_products import HostProducts
from tests.kernels.triton.quick import quicken
from tests.synthetic.llama_checkpoints import TinyLlama
from tests.synthetic.plan_checkpoints import PLANS, write_checkpoint
from tests.synthetic.stored_slots import Quantized
from tests.synthetic.tiny_configs import tiny

ON_CARD = torch.cuda.is_available()
FAMILIES = ("llama", "qwen3_5", "nemotron_h")
LLAMA = TinyLlama(vocabulary=96, heads=8, gain=1.2)
CONTEXT = 700
if not ON_CARD:
    quicken()


def silent(line: str) -> None:
    """A progress callback that says nothing."""


@dataclass(frozen=True, slots=True)
class TinyCuda:
    """A written checkpoint and its plan."""

    folder: Path
    plan: DecoderPlan

    def reader(self) -> WeightReader:
        """Its slots."""
        facts = FolderReader().facts(self.folder)
        bound = resolve(self.plan, facts.tensors, parse_quantization(facts.config))
        return WeightReader(bound, facts, silent, self.plan.tensors.probes)

    def parts(self, sizes: Room, head: MakeHead | None = None) -> EngineParts:
        """Its decoder."""
        weights = self.reader()
        if not ON_CARD:
            products = HostProducts(weights)
            assembly = Assembly(weights, products, sizes, torch.device("cpu"), torch.float32, "float32", HostDelta())
            return assembled(self.plan, assembly, head, graphs=False)
        device = torch.device("cuda", 0)
        torch.zeros(1, device=device)
        card, cubins = current_device(), self.folder.parent / "cubins"
        rows, delta = RowKernels(card, cubins, silent), DeltaKernels(card, cubins, silent)
        assembly = Assembly(weights, Products(weights, rows, device), sizes, device, torch.bfloat16, "bfloat16", delta)
        return assembled(self.plan, assembly, head, graphs=True)

    def model(self, streams: int = 6, kept: int = 3, head: MakeHead | None = None) -> CudaModel:
        """The model, unchecked."""
        sizes = room(streams, CONTEXT, kept)
        parts = self.parts(sizes, head)
        limits = wanted_limits(self.plan, sizes, CONTEXT, streams, None if parts.head is None else parts.head.limits)
        return CudaModel(parts, identity_of("tiny", "w", "r", "cpu", ()), limits, ModelCosts(((1, 1.0),), 0.1))


def tiny_cuda(
    folder: Path, family: str, seed: int = 5, quantization: Quantized | None = None, **fields: Any
) -> TinyCuda:
    """Write a family's tiny checkpoint below `folder`; `fields` change its config."""
    if family == "llama":
        return TinyCuda(LLAMA.write(folder / "checkpoint"), llama.plan(LLAMA.config()))
    config = tiny(family, **fields)
    path = write_checkpoint(folder / "checkpoint", config, seed, "mlx", quantization)
    return TinyCuda(path, PLANS[family](config))
