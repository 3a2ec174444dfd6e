"""A decoder of true geometry over tensors that have shapes and no bytes, and a meter of how many they would have.

Kernels launch nothing: what is seen is what the blocks allocate, and when they let it go. Weights have no values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.decoder import Decoder
from tensorfold.adapters.cuda.engine_parts import EngineParts
from tensorfold.adapters.cuda.products import Products
from tensorfold.application.stored_weights import Codes, Values
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.kernels.cuda.delta_steps import Form, Steps
from tensorfold.kernels.cuda.driver import Device
from tests.benchmarks.gpu_heads import head_of
from tests.synthetic.planted_weights import PlantedWeights
from tests.synthetic.true_models import TrueModel, true_model

_FEW = 1 << 20


class Meter(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Bytes of all tensors made while it is entered and still held; `peak` are the most since `reset`."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, tuple[Any, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                storage = tensor.untyped_storage()
                known = self._held.get(storage._cdata)
                if known is None or known[0].expired():
                    self._held[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, self.held)
        return made

    @property
    def held(self) -> int:
        """Bytes held now."""
        self._held = {key: one for key, one in self._held.items() if not one[0].expired()}
        return sum(size for _, size in self._held.values())

    def most(self, run: Callable[[], object]) -> tuple[int, int]:
        """Bytes that a call holds at most beyond what was held before, and those that it leaves held."""
        before = self.peak = self.held
        kept = run()
        left = self.held - before
        del kept
        return self.peak - before, left


@dataclass(frozen=True, slots=True)
class Unwritten(PlantedWeights):
    """Slots whose large values are whatever lies there."""

    def floats(self, path: str) -> NDArray[np.float32]:
        """Small slots have values: some are read on the host."""
        shape = self.slots[path].shape
        if np.prod(shape) > _FEW:
            return np.empty(shape, np.float32)
        return self.drawn.values(path, self.slots[path]).astype(np.float32)

    def _stored(self, path: str, name: str, shape: tuple[int, ...]) -> Codes | Values:
        if not self._coded(self.slots[path]):
            return Values(np.empty(shape, np.uint16), "BF16")
        words = np.empty((*shape[:-1], shape[-1] * self.bits // 32), np.uint32)
        scales = np.empty((*shape[:-1], shape[-1] // self.group), np.float32)
        return Codes(words, scales, scales, self.bits, self.group, "BF16")


class NoLaunches:
    """Row kernels of a card that launch nothing."""

    device = Device(132, (9, 0), 232448)

    def expect_rows(self, *asked: Any, **how: Any) -> None:
        """Nothing is compiled."""

    expect_experts = expect_rows

    def rows(self, *asked: Any, **how: Any) -> Any:
        """A launch of nothing."""
        return lambda *addresses: None

    experts = rows


class NoDelta:
    """Gated delta steps that are not launched."""

    def expect(self, form: Form, lanes: int) -> None:
        """Nothing is compiled."""

    def launch(self, form: Form, steps: Steps, stream: int, early: bool) -> None:
        """Nothing runs."""


class NoGraphs:
    """What is recorded runs once, as a capture does."""

    def record(self, queue: Callable[[Callable[[], None]], None]) -> Callable[[], None]:
        """Run it; replays run nothing."""
        queue(lambda: None)
        return lambda: None


def silence(monkeypatch: Any) -> None:
    """Let no Triton kernel run, and no weight be packed."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    from tensorfold.adapters.cuda import expert_parts, packed

    for kind in (JITFunction, InterpretedFunction):
        monkeypatch.setattr(kind, "run", lambda *arguments, **how: None)
    for module in (expert_parts, packed):
        monkeypatch.setattr(module, "pack_side_by_side", lambda *arguments: None)


def built(name: str, layers: int, pools: Room) -> tuple[TrueModel, EngineParts]:
    """A model of true geometry cut to its first layers, with its head, over these pools."""
    found = true_model(name, layers)
    weights = Unwritten(found.weights.slots, found.weights.drawn)
    own = found.drafter_weights
    model = replace(
        found, weights=weights, drafter_weights=None if own is None else Unwritten(own.slots, own.drawn)
    )  # fmt: skip
    device = torch.device("meta")
    assembly = Assembly(
        weights, Products(weights, NoLaunches(), device), pools, device, torch.bfloat16, "bfloat16", NoDelta()
    )  # fmt: skip
    make = head_of(model.plan, model.weights, model.drafter, model.drafter_weights)
    decoder = Decoder(assembly, model.plan)
    head = None if make is None else make(assembly, decoder)
    return model, EngineParts(assembly, decoder, head, graphs=True, recorder=NoGraphs())
