"""Tiny models loaded through the backend as the server loads them, and rows driven through the port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx.backend import MlxBackend
from tensorfold.adapters.mlx.loader import Loading
from tensorfold.adapters.mlx.model import MlxModel
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.runtime import current
from tensorfold.application.loading import describe
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.target_model import Lane, LaneWindow, RoundBatch, Span
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import Window, chain
from tests.synthetic.llama_checkpoints import TinyLlama

WINDOWED = {"sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"]}
SMALL = TinyLlama(seed=31, vocabulary=96, width=64, heads=4, kv_heads=2, mlp=96)
SLIDING = TinyLlama(seed=32, vocabulary=96, width=64, heads=4, kv_heads=2, mlp=96, extra=WINDOWED)
HALF = TinyLlama(seed=33, vocabulary=96, width=64, heads=6, kv_heads=2, head_dim=16, mlp=96, dtype="BF16", tied=False)


def load(
    folder: Path,
    shape: TinyLlama,
    *,
    context: int | None = None,
    streams: int = 8,
    say: Callable[[str], None] = lambda line: None,
) -> MlxModel[Any]:
    """Write a checkpoint below `folder`, load it and check its rows."""
    facts = FolderReader().facts(shape.write(folder / "checkpoint"))
    told = describe(facts, "mlx", context)
    checkpoint = ModelCheckpoint(told.plan, told.bound, facts)
    model = MlxBackend(folder / "cache").load(
        checkpoint, name="tiny", context=told.context, max_streams=streams, on_progress=say
    )
    assert isinstance(model, MlxModel)
    return model


def load_through(folder: Path, shape: TinyLlama, ops: RowOps[Any], streams: int = 8) -> MlxModel[Any]:
    """The same over chosen operations, such as those of a GPU run on a CPU."""
    facts = FolderReader().facts(shape.write(folder / "checkpoint"))
    told = describe(facts, "mlx", None)
    loading = Loading(ModelCheckpoint(told.plan, told.bound, facts), current(), lambda line: None)
    return loading.checked(ops, folder / "checks", "tiny", told.context, streams)


@dataclass(frozen=True, slots=True)
class Row:
    """What one row drew, and the digest of its logits."""

    draw: int
    digest: int


def absorb(model: MlxModel[Any], ids: Sequence[int], capacity: int) -> Lane:
    """A lane that absorbed a prompt."""
    lane = model.open(capacity)
    if ids:
        model.collect(model.prefill(lane, np.asarray(ids, np.int64), Span(0, len(ids))))
    return lane


def length_of(model: MlxModel[Any], lane: Lane) -> int:
    """Tokens a lane absorbed."""
    return model._lanes[lane].length


def rows(model: MlxModel[Any], asked: Sequence[tuple[Lane, Window, Sampling]], paths: Any = None) -> list[list[Row]]:
    """One launch over some lanes; kept by `paths`, or discarded."""
    windows = tuple(
        LaneWindow(lane, length_of(model, lane), window, sampling, audit=True) for lane, window, sampling in asked
    )
    ticket = model.launch(RoundBatch(windows))
    draws = model.collect(ticket)
    if paths is None:
        model.discard(ticket)
    else:
        model.keep(ticket, paths)
    made = []
    for tokens, prints in zip(draws.tokens, draws.prints, strict=True):
        assert prints is not None
        made.append([Row(t, p) for t, p in zip(tokens, prints, strict=True)])
    return made


def serial(model: MlxModel[Any], lane: Lane, tokens: Sequence[int], sampling: Sampling) -> list[Row]:
    """One row a round over `tokens`, all kept."""
    return [rows(model, [(lane, chain(token), sampling)], [(0,)])[0][0] for token in tokens]


def serial_tree(model: MlxModel[Any], lane: Lane, window: Window, sampling: Sampling) -> list[Row]:
    """One-row rounds down every path of a tree, on copies of a lane."""
    made = []
    for row in range(len(window)):
        copy = model.fork(lane)
        made.append(serial(model, copy, [window.tokens[r] for r in window.path_to(row)], sampling)[-1])
        model.close(copy)
    return made
