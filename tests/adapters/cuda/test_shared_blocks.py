"""Two models over the same blocks, of which one has lanes at a time: each finds its own pages."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("what the adapter imports needs Triton's interpreter: TRITON_INTERPRET=1", allow_module_level=True)

from tensorfold.adapters.cuda.engine_parts import EngineParts  # noqa: E402
from tensorfold.adapters.cuda.model import CudaModel  # noqa: E402
from tensorfold.application.ports.target_model import LaneWindow, RoundBatch, Span  # noqa: E402
from tensorfold.domain.sampling import Sampling  # noqa: E402
from tensorfold.domain.windows import Window, chain, tree  # noqa: E402
from tests.adapters.cuda.listed_model import listed  # noqa: E402

PROMPT = np.arange(3, 303, dtype=np.int64) % 50
LONG = 1100
"""Tokens of a lane, so that it has several pages, whose order tells one table from another."""


def _round(model: Any, lane: int, at: int, window: Window, path: tuple[int, ...]) -> tuple[int, ...]:
    ticket = model.launch(RoundBatch((LaneWindow(lane, at, window, Sampling()),)))
    drawn = model.collect(ticket).tokens[0]
    model.keep(ticket, [path])
    return tuple(drawn)


def _opened(model: Any) -> int:
    lane: int = model.open(LONG)
    model.collect(model.prefill(lane, PROMPT, Span(0, len(PROMPT))))
    return lane


def _twin(model: CudaModel, sampler: Any, paths: Any, tape: Any) -> CudaModel:
    parts = EngineParts(
        model.parts.assembly, model.parts.decoder, None, graphs=False, sampler=sampler, recorder=tape, paths=paths
    )
    return CudaModel(parts, model.identity, model.limits, model.costs, looks_ahead=False)


def test_a_tree_is_kept_in_the_pages_of_its_own_model_whoever_decoded_last() -> None:
    made = listed(graphs=True, looks_ahead=False, streams=1, kept=0)
    model, alone = made.model, listed(looks_ahead=False, streams=1, kept=0).model
    other = _twin(model, model.parts._make_sampler, model.parts._make_paths, made.tape)
    forked = tree(5, (6, 7, 8), (0, 0, 2))
    for each in (model, alone):  # the graph of four rows is made
        lane = _opened(each)
        _round(each, lane, len(PROMPT), forked, (0,))
        each.close(lane)
    lane = _opened(other)
    _round(other, lane, len(PROMPT), chain(5), (0,))
    other.close(lane)
    drawn = []
    for each in (model, alone):
        lane = _opened(each)
        first = _round(each, lane, len(PROMPT), forked, (0, 2, 3))
        drawn.append((first, _round(each, lane, len(PROMPT) + 3, chain(9, (4, 2)), (0, 1))))
    assert drawn[0] == drawn[1]
