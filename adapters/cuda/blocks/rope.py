"""Rotary positions as the kernels take them: turns a position of each rotated pair, float64, made once for a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.domain.families.ops import Rope
from tensorfold.domain.families.rope import inverse_frequencies


def turns_of(plan: Rope, device: Any) -> Tensor:
    """Float64 [dims / 2] on `device`: 0 where a pair stands still."""
    return torch.from_numpy(inverse_frequencies(plan) / (2 * np.pi)).to(device)
