"""Blocks over bfloat16 rows: their results are rows again, and as near to the exact ones as such rows can be."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.domain.families.ops import (
    FeedForward,
    Mamba2,
    MixtureOfExperts,
    Norm,
    Op,
    Router,
    SharedExpert,
    ShortConv,
    SwiGLU,
)
from tensorfold.domain.windows import chain
from tests.adapters.mlx.blocks.held_op import OneOp, rows_of

WIDTH = 32
OPS: dict[str, Op] = {
    "mamba2": Mamba2(4, 8, 8, 2, ShortConv(64, 4, bias=True), Norm(1e-5, groups=2)),
    "relu2": FeedForward(48),
    "gelu": FeedForward(48, "gelu_tanh"),
    "gated": MixtureOfExperts(Router(8, 2, "softmax"), SwiGLU(24, "gelu_tanh"), SharedExpert(SwiGLU(24), gated=True)),
    "latent": MixtureOfExperts(
        Router(8, 2, "sigmoid", correction=True, scale=2.5), FeedForward(24), SharedExpert(FeedForward(24)), latent=16
    ),
    "limited": MixtureOfExperts(Router(8, 2, "sigmoid"), SwiGLU(24, limit=0.5)),
}


def rounded(values: Any) -> Any:
    return np.array(mx.array(values).astype(mx.bfloat16).astype(mx.float32))


@pytest.mark.parametrize("form", sorted(OPS))
def test_rows_stay_rows_and_near_the_exact_ones(form: str) -> None:
    halves, exact = OneOp(LibraryRows("bfloat16"), OPS[form], WIDTH), OneOp(CpuRows(), OPS[form], WIDTH)
    made: list[Any] = []
    block = halves.block

    def watched(rows: Any, context: Any, residual: Any) -> Any:
        made.append(block(rows, context, residual))
        return made[-1]

    halves.block = watched
    rows = rounded(rows_of(3, 12, WIDTH))
    lane = halves.open()
    found = halves.run((lane, rows, chain(0, [0] * 11)))
    wanted = exact.run((exact.open(), rows, chain(0, [0] * 11)))
    assert made[0].dtype == mx.bfloat16
    assert np.abs(found - wanted).max() <= 0.05 * np.abs(wanted).max()
    lane.keep(range(12))
    sizes = {"bfloat16": 2, "float32": 4}
    parts = [part for state in lane.export() for part in state]
    for entry, data in zip(halves.entries, parts, strict=True):
        assert len(data) == sizes[entry.dtype] * int(np.prod(entry.shape)), entry.path
