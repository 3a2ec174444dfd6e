"""A case's logits through this backend, by each arithmetic it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx.forward import Forward
from tensorfold.adapters.mlx.loader import Loading
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.runtime import current
from tensorfold.application.loading import describe
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.domain.windows import chain
from tests.adapters.mlx.parity.cases import Case
from tests.adapters.mlx.reference_decoder import ReferenceDecoder

Logits = NDArray[np.float32]
WINDOW = 16


def arithmetics(case: Case) -> dict[str, RowOps[Any]]:
    """The ways a case's rows are computed in float32: numpy rows, MLX rows, numpy rows over matrices as stored.

    The last rounds rows to the dtype of dense half-precision matrices, so for those it is no float32 arithmetic.
    """
    ways: dict[str, RowOps[Any]] = {"rows": CpuRows(), "library": LibraryRows("float32")}
    if case.shape.quantization is not None or case.shape.dtype == "F32":
        ways["stored"] = CpuRows(unpack=False)
    return ways


def forward_of(folder: Path, ops: RowOps[Any]) -> Forward[Any]:
    """The checkpoint in a folder, loaded as the server loads it but not checked."""
    facts = FolderReader().facts(folder)
    told = describe(facts, "mlx", None)
    loading = Loading(ModelCheckpoint(told.plan, told.bound, facts), current(), lambda line: None)
    return Forward(loading.decoder(ops))


def by_us(case: Case, folder: Path, ops: RowOps[Any], rows: int = WINDOW) -> Logits:
    """Logits [T, V]: windows of so many rows, kept one after another."""
    forward = forward_of(case.shape.write(folder), ops)
    tokens = case.tokens().tolist()
    lane = forward.open(len(tokens))
    parts = []
    for at in range(0, len(tokens), rows):
        part = tokens[at : at + rows]
        parts.append(forward.logits(lane, chain(part[0], part[1:])))
        lane.keep(tuple(range(len(part))))
    return np.concatenate(parts)


def by_float64(case: Case) -> NDArray[np.float64]:
    """Logits [T, V] of the plain float64 decoder, which knows no cache."""
    tokens = case.tokens().tolist()
    seen = [tuple(range(row + 1)) for row in range(len(tokens))]
    return ReferenceDecoder(case.shape).logits(tokens, list(range(len(tokens))), seen)


def differences(ours: Logits, theirs: NDArray[Any]) -> tuple[float, int]:
    """The largest difference of a logit, and the positions whose best token differs."""
    largest = float(np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max())
    return largest, int((ours.argmax(axis=1) != theirs.argmax(axis=1)).sum())
