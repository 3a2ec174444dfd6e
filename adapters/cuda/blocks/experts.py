"""Routed experts beside a shared one: every row through the experts it chose, summed in slot order in float32."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.blocks.feed_forward import FeedForwardBlock
from tensorfold.adapters.cuda.blocks.router import RouterBlock
from tensorfold.adapters.cuda.blocks.swiglu import SwigluBlock
from tensorfold.adapters.cuda.rows import Chunk, Rows
from tensorfold.domain.families.ops import MixtureOfExperts, SharedExpert, SwiGLU

Tensor = Any


class ExpertsBlock:
    """The routed sum, through a narrower latent where the plan has one, plus the shared expert; rounded once."""

    def __init__(self, assembly: Assembly, plan: MixtureOfExperts, path: str) -> None:
        products = assembly.products
        self._experts = products.experts(plan, path)
        self._choose = RouterBlock(assembly, plan.router, f"{path}.router", self._experts.folded)
        self._narrow = products.linear(f"{path}.latent_down") if plan.latent else None
        self._widen = products.linear(f"{path}.latent_up", wide=True) if plan.latent else None
        apart = plan.shared is not None and not self._experts.folded
        self._shared = SharedExpertBlock(assembly, plan.shared, f"{path}.shared") if apart and plan.shared else None
        # What nothing is added to is rounded where it is summed.
        self._summed = assembly.dtype if self._widen is None and self._shared is None else torch.float32

    def decode(self, x: Tensor, at: Rows | None) -> Tensor:
        """Rows of a round [R, D] to [R, D]."""
        choice = self._choose.decode(x)
        total = self._experts.decode(x if self._narrow is None else self._narrow.decode(x), choice, self._summed)
        if self._widen is not None:
            total = self._widen.decode(total.to(x.dtype))
        return (total if self._shared is None else total + self._shared.decode(x)).to(x.dtype)

    def prompt(self, x: Tensor, at: Chunk | None) -> Tensor:
        """Rows of a prompt [T, D] to [T, D]."""
        choice = self._choose.prompt(x)
        total = self._experts.prompt(x if self._narrow is None else self._narrow.prompt(x), choice, self._summed)
        if self._widen is not None:
            total = self._widen.prompt(total.to(x.dtype))
        return (total if self._shared is None else total + self._shared.prompt(x)).to(x.dtype)


class SharedExpertBlock:
    """The expert of every row, in float32, times the sigmoid of its switch where it has one."""

    def __init__(self, assembly: Assembly, plan: SharedExpert, path: str) -> None:
        self._expert: SwigluBlock | FeedForwardBlock
        if isinstance(plan.op, SwiGLU):
            self._expert = SwigluBlock(assembly, plan.op, path, wide=True)
        else:
            self._expert = FeedForwardBlock(assembly, plan.op, path, wide=True)
        self._switch = assembly.products.linear(f"{path}.switch", wide=True) if plan.gated else None

    def decode(self, x: Tensor) -> Tensor:
        """Float32 [R, D] of a round's rows."""
        made = self._expert.decode(x, None)
        return made if self._switch is None else made * torch.sigmoid(self._switch.decode(x))

    def prompt(self, x: Tensor) -> Tensor:
        """The same of a prompt's rows."""
        made = self._expert.prompt(x, None)
        return made if self._switch is None else made * torch.sigmoid(self._switch.prompt(x))
