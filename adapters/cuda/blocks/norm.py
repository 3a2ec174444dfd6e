"""RMS norm behind the sum that makes the residual: one launch for both."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.domain.families.ops import Norm
from tensorfold.kernels.triton.norms import add_norm

Tensor = Any


class NormBlock:
    """Rows normed over their whole width, with a weight of their own."""

    def __init__(self, assembly: Assembly, plan: Norm, path: str) -> None:
        if plan.layer or plan.groups != 1 or not plan.weight:
            raise ValueError(f"{path} is not a plain RMS norm with a weight")
        self.eps = plan.eps
        self.weight = torch.from_numpy(assembly.weights.floats(path)).to(assembly.device).contiguous()

    def __call__(self, stream: Tensor, made: Tensor | None) -> tuple[Tensor, Tensor]:
        """The normed rows, and the residual with `made` added to it."""
        out = torch.empty_like(stream)
        total = stream if made is None else torch.empty_like(stream)
        add_norm(stream if made is None else made, None if made is None else stream, self.weight, out, total, self.eps)
        return out, total
