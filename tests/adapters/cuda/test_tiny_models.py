"""Tiny models of every family on CUDA's blocks, run on the CPU: the port's promises, and logits of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tensorfold.adapters.cuda.model import CudaModel  # noqa: E402
from tensorfold.application.ports.target_model import LaneWindow, RoundBatch, Span  # noqa: E402
from tensorfold.domain.sampling import Sampling  # noqa: E402
from tensorfold.domain.windows import Window, chain, tree  # noqa: E402
from tests.adapters.cuda.tiny_cuda import FAMILIES, ON_CARD, TinyCuda, tiny_cuda  # noqa: E402
from tests.contracts.candidates import checks_of, names  # noqa: E402
from tests.contracts.target_model import (  # noqa: E402
    head_checks,
    image_checks,
    lane_checks,
    mask_checks,
    misuse_checks,
    row_checks,
    shape_checks,
)
from tests.contracts.target_model.rows import ModelSubject  # noqa: E402
from tests.reference.reference_model import ReferenceModel  # noqa: E402

CHECKS = checks_of(lane_checks, row_checks, head_checks, mask_checks, image_checks, misuse_checks, shape_checks)
NEAR = 0.4 if ON_CARD else 2e-3
"""How far rows in bf16, or in float32, may be from float64 ones, for logits of a few units."""
SMALL: dict[str, dict[str, Any]] = {"llama": {}, "qwen3_5": {"num_hidden_layers": 4}, "nemotron_h": {}}


@pytest.fixture(scope="module", params=FAMILIES)
def tiny(request: Any, tmp_path_factory: pytest.TempPathFactory) -> TinyCuda:
    return tiny_cuda(tmp_path_factory.mktemp(request.param), request.param, **SMALL[request.param])


@pytest.fixture(scope="module")
def subject(tiny: TinyCuda) -> Iterator[ModelSubject]:
    built = ModelSubject(tiny.model(), strict=True, pedantic=True)
    yield built
    assert built.model.lanes() == ()
    built.model.shutdown()


# The interpreter takes seconds for a row of a whole model.
@pytest.mark.skipif(not ON_CARD, reason="every promise takes some thousand rows: run on a card")
@pytest.mark.parametrize("check", CHECKS, ids=names(CHECKS))
def test_a_cuda_model_promises_that(check: Callable[[ModelSubject], None], subject: ModelSubject) -> None:
    check(subject)


def _text(count: int, vocabulary: int) -> list[int]:
    return [int(i) for i in np.random.default_rng(3).integers(3, vocabulary, count)]


def _logits(model: CudaModel, lane: int, at: int, window: Window, keep: tuple[int, ...]) -> np.ndarray:
    ticket = model.launch(RoundBatch((LaneWindow(lane, at, window, Sampling()),)))
    model.collect(ticket)
    logits: np.ndarray = model.parts.passes(len(window)).logits.float().cpu().numpy().copy()
    model.keep(ticket, [keep])
    return logits


def test_rows_of_prompts_windows_and_trees_are_near_the_reference(tiny: TinyCuda) -> None:
    if ON_CARD and tiny.plan.family == "nemotron_h":
        pytest.skip("rows in bf16 may choose other experts than the reference")
    model = tiny.model(streams=1, kept=1)
    text = _text(20, tiny.plan.head.vocabulary)
    exact = ReferenceModel.load(tiny.folder, tiny.plan)
    whole = exact.logits(text)
    lane = model.open(200)
    model.collect(model.prefill(lane, np.asarray(text, np.int64), Span(0, 6)))
    model.collect(model.prefill(lane, np.asarray(text, np.int64), Span(6, 11)))
    near(_logits(model, lane, 11, chain(text[11]), (0,)), whole[11:12])
    near(_logits(model, lane, 12, chain(text[12], text[13:15]), (0, 1, 2)), whole[12:15])
    near(_logits(model, lane, 15, chain(text[15], text[16:19]), (0, 1)), whole[15:19])
    window = tree(text[17], [*text[18:20], 5, 6], [0, 1, 0, 3])
    near(_logits(model, lane, 17, window, (0, 3, 4)), exact.tree_logits(text[:17], window))
    after = [*text[:18], 5, 6]
    near(_logits(model, lane, 20, chain(9, [4]), (0,)), exact.logits([*after, 9, 4])[20:])
    model.close(lane)


def near(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert float(np.abs(ours - theirs).max()) < NEAR


@pytest.mark.skipif(not ON_CARD, reason="the bookkeeping is run on lists elsewhere; this needs a card's queue")
def test_a_round_queued_ahead_changes_no_token(tiny: TinyCuda) -> None:
    model, plain = tiny.model(), tiny.model()
    plain._look_ahead = lambda launched, rows: None  # type: ignore[method-assign]
    assert _replies(model) == _replies(plain)


def _replies(model: CudaModel) -> list[list[int]]:
    """Two streams, one of which leaves, the other of which drafts now and then and is cut."""
    settings = (Sampling(), Sampling(seed=4, temperature=0.9, top_p=0.95))
    steps, leaves, every = 40, 20, 9
    text = _text(12, model.limits.vocabulary)
    lanes = [model.open(100) for _ in settings]
    for lane in lanes:
        model.collect(model.prefill(lane, np.asarray(text, np.int64), Span(0, 11)))
    replies = [[text[11]], [text[11]]]
    for step in range(steps):
        running = (0, 1) if step < leaves else (0,)
        windows = []
        for at in running:
            drafts = [1, 2, 3] if step % every == every - 1 and at == 0 else []
            position = 11 + len(replies[at]) - 1
            windows.append(LaneWindow(lanes[at], position, chain(replies[at][-1], drafts), settings[at]))
        ticket = model.launch(RoundBatch(tuple(windows)))
        draws = model.collect(ticket).tokens
        model.keep(ticket, [(0,) for _ in running])
        for at, drawn in zip(running, draws, strict=True):
            replies[at].append(drawn[0])
    for lane in lanes:
        model.close(lane)
    return replies
