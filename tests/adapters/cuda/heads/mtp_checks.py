"""A model's own head on CUDA's blocks, run on the CPU: `python -m tests.adapters.cuda.heads.mtp_checks FAMILY NAME...`.

It drafts what the float64 oracle drafts, whatever windows its rows came in.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"

    from tests.kernels.triton.quick import quicken

    quicken()

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tensorfold.adapters.cuda.heads.makers import mtp_head
from tensorfold.adapters.cuda.model import CudaModel
from tensorfold.application.ports.target_model import Chain, LaneWindow, ProposeSpec, RoundBatch, Span
from tensorfold.domain.sampling import Sampling, draw
from tensorfold.domain.verification import accept
from tensorfold.domain.windows import Window, chain, tree
from tests.adapters.cuda.tiny_cuda import TinyCuda, tiny_cuda
from tests.reference.reference_heads import mtp_logits
from tests.reference.reference_model import ReferenceModel

TOKENS = [3 + 37 * at % 250 for at in range(14)]
GREEDY = Sampling()
SAMPLED = Sampling(41, 0.9, 0, 0.95)


def absorbed(model: CudaModel, tokens: list[int], *cuts: int) -> int:
    """A lane behind a prompt that came in spans."""
    lane = model.open(80)
    at = 0
    for cut in (*cuts, len(tokens)):
        model.collect(model.prefill(lane, np.asarray(tokens, np.int64), Span(at, cut)))
        at = cut
    return lane


def kept(model: CudaModel, lane: int, at: int, window: Window, path: tuple[int, ...]) -> None:
    ticket = model.launch(RoundBatch((LaneWindow(lane, at, window, GREEDY),)))
    model.collect(ticket)
    model.keep(ticket, [path])


def drafted(model: CudaModel, lane: int, pending: int, sampling: Sampling = GREEDY, depth: int = 4) -> Chain:
    (answer,) = model.propose([ProposeSpec(lane, pending, depth, sampling)])
    assert isinstance(answer, Chain)
    return answer


def check_a_chain_is_the_oracles(tiny: TinyCuda, model: CudaModel) -> None:
    lane = absorbed(model, TOKENS[:-1], 5)
    reference = ReferenceModel.load(tiny.folder, tiny.plan)
    assert tiny.plan.mtp is not None
    for sampling in (GREEDY, SAMPLED):
        answer = drafted(model, lane, TOKENS[-1], sampling)
        assert len(answer.tokens) == 4
        for depth, token in enumerate(answer.tokens):
            logits = mtp_logits(reference, TOKENS, answer.tokens[:depth])[-1]
            assert draw(logits.astype(np.float32), len(TOKENS) + depth, sampling) == token
            chances = np.exp((logits - logits.max()) / (sampling.temperature or 1.0))
            np.testing.assert_allclose(answer.confidence[depth], chances[token] / chances.sum(), atol=2e-3)
    assert drafted(model, lane, TOKENS[-1], GREEDY, 1) == drafted(model, lane, TOKENS[-1], GREEDY, 1)
    model.close(lane)


def check_how_rows_came_does_not_matter(tiny: TinyCuda, model: CudaModel) -> None:
    whole, serial, other = (
        absorbed(model, TOKENS[: 12 if at == 0 else 4], *cuts) for at, cuts in enumerate([(), (), (3,)])
    )
    for at in range(4, 8):
        kept(model, serial, at, chain(TOKENS[at]), (0,))
        if at == 5:
            drafted(model, serial, TOKENS[6], depth=2)
    kept(model, serial, 8, chain(TOKENS[8], TOKENS[9:12]), (0, 1, 2, 3))
    kept(model, other, 4, chain(TOKENS[4], [TOKENS[5], 9, 8]), (0, 1))
    kept(model, other, 6, tree(TOKENS[6], [1, TOKENS[7], 2, TOKENS[8]], [0, 0, 2, 2]), (0, 2, 4))
    kept(model, other, 9, chain(TOKENS[9], TOKENS[10:12]), (0, 1, 2))
    answers = [drafted(model, lane, TOKENS[12], depth=2) for lane in (whole, serial, other)]
    assert answers[0].tokens == answers[1].tokens == answers[2].tokens
    np.testing.assert_allclose(answers[1].confidence, answers[2].confidence, atol=1e-5)
    held = model.fork(other)
    assert model.propose([ProposeSpec(held, TOKENS[12], 2, GREEDY)]) == [None]  # it holds no slot
    twin = model.resume(held, 80)
    kept(model, twin, 12, chain(TOKENS[12]), (0,))
    kept(model, other, 12, chain(TOKENS[12]), (0,))
    assert drafted(model, twin, TOKENS[13], depth=2).tokens == drafted(model, other, TOKENS[13], depth=2).tokens
    image = model.export(other)
    model.close(whole)
    restored = model.restore(image, 80)
    assert drafted(model, restored, TOKENS[13], depth=2).tokens == drafted(model, other, TOKENS[13], depth=2).tokens
    assert model.export(restored) == image
    for lane in (serial, other, held, twin, restored):
        model.close(lane)


def check_lanes_draft_side_by_side_what_they_draft_alone(tiny: TinyCuda, model: CudaModel) -> None:
    texts = [TOKENS[:7], TOKENS[3:12], TOKENS[2:5]]
    lanes = [absorbed(model, text) for text in texts]
    specs = [ProposeSpec(lane, 20 + at, 2 + at, SAMPLED) for at, lane in enumerate(lanes)]
    alone = [model.propose([spec])[0] for spec in specs]
    head = model.parts.head
    together = head.propose([(model._heads[spec.lane], spec) for spec in specs])
    assert [answer.tokens for answer in together] == [answer.tokens for answer in alone if isinstance(answer, Chain)]
    for lane in lanes:
        model.close(lane)


def check_many_kept_rows_wait_without_being_lost(tiny: TinyCuda, model: CudaModel) -> None:
    assert model.parts.room.width == 16
    lane, text = absorbed(model, TOKENS[:3]), [3 + 11 * at % 200 for at in range(20)]
    kept(model, lane, 3, chain(text[0], text[1:14]), tuple(range(14)))
    kept(model, lane, 17, chain(text[14], text[15:20]), tuple(range(6)))
    whole = absorbed(model, [*TOKENS[:3], *text])
    assert drafted(model, lane, 5, depth=2).tokens == drafted(model, whole, 5, depth=2).tokens
    model.close(lane)
    model.close(whole)


class Streams:
    """Streams of one launch that draft round after round; what is queued for them is what they would be given."""

    def __init__(self, model: CudaModel, texts: list[list[int]], samplings: list[Sampling], depth: int) -> None:
        self.model, self.texts, self.samplings, self.depth = model, texts, samplings, depth
        self.lanes = [absorbed(model, text[:-1]) for text in texts]

    def asked(self, *, twice: bool = False) -> list[Any]:
        """The heads' answers; `twice`: they are the same where nothing is known of what was queued."""
        specs = [
            ProposeSpec(lane, text[-1], self.depth, sampling)
            for lane, text, sampling in zip(self.lanes, self.texts, self.samplings, strict=True)
        ]
        answers = list(self.model.propose(specs))
        if twice:
            for lane in self.lanes:
                self.model.drafts_ahead.forget(lane)
            for one, other in zip(answers, self.model.propose(specs), strict=True):
                same(one, other)
        return answers

    def launched(self, windows: list[Window]) -> tuple[Any, Any]:
        parts = zip(self.lanes, self.texts, windows, self.samplings, strict=True)
        batch = RoundBatch(tuple(LaneWindow(lane, len(text) - 1, window, s) for lane, text, window, s in parts))
        ticket = self.model.launch(batch)
        return ticket, self.model.collect(ticket).tokens

    def draws(self) -> list[int]:
        """What each stream draws behind its pending token; nothing stays."""
        ticket, drawn = self.launched([chain(text[-1], [7]) for text in self.texts])
        self.model.discard(ticket)
        return [tokens[0] for tokens in drawn]

    def round(self, windows: list[Window]) -> list[int]:
        """One round; how many rows of each window stand."""
        ticket, drawn = self.launched(windows)
        found = [accept(window, tokens, 99, frozenset()) for window, tokens in zip(windows, drawn, strict=True)]
        self.model.keep(ticket, [each.path for each in found])
        for text, each in zip(self.texts, found, strict=True):
            text += each.tokens
        return [len(each.path) for each in found]

    def counts(self) -> tuple[int, int, int]:
        ahead = self.model.drafts_ahead
        return ahead.queued, ahead.used, ahead.missed


def same(one: Any, other: Any) -> None:
    """Drafts that are the same, their numbers as near as the arithmetic of other passes brings them."""
    if isinstance(one, Chain):
        assert isinstance(other, Chain) and one.tokens == other.tokens
        np.testing.assert_allclose(one.confidence, other.confidence, atol=1e-5)
        return
    for mine, theirs, scores, others, pairs, others_pairs in zip(
        one.ids, other.ids, one.scores, other.scores, one.pair, other.pair, strict=True
    ):
        assert mine.tolist() == theirs.tolist()
        np.testing.assert_allclose(scores, others, atol=1e-5)
        np.testing.assert_allclose(pairs, others_pairs, atol=1e-5)


def follow_launches(model: CudaModel, depth: int) -> None:
    """Drafts are queued behind trees of which a branch stands; a launch that is forgotten leaves none of its rows."""
    streams = Streams(model, [TOKENS[:3]], [SAMPLED], depth)
    queued, used, missed = streams.counts()
    streams.asked()
    right = streams.draws()
    streams.asked()
    windows = [tree(text[-1], [5, token, 6], [0, 0, 1]) for text, token in zip(streams.texts, right, strict=True)]
    assert min(streams.round(windows)) >= 2
    streams.depth += 1  # more than were queued
    answers = streams.asked(twice=True)
    assert streams.counts() == (queued + 1, used + 1, missed)
    streams.draws()
    for before, after in zip(answers, streams.asked(), strict=True):
        same(before, after)
    assert streams.counts() == (queued + 2, used + 1, missed + 1)
    for lane in streams.lanes:
        model.close(lane)


def check_drafts_are_queued_behind_launches(tiny: TinyCuda, model: CudaModel) -> None:
    follow_launches(model, 2)


def check_more_drafts_for_one_lane_write_no_other_lanes_keys(tiny: TinyCuda, model: CudaModel) -> None:
    """Drafts of two lanes were queued together; one goes on alone, or closes, before more are asked for the other."""
    for closes in (False, True):
        streams = Streams(model, [TOKENS[:3], TOKENS[3:7]], [GREEDY, GREEDY], 2)
        for _ in range(2):
            streams.asked()
            streams.round([chain(text[-1], [7]) for text in streams.texts])
        (lane, other), at = streams.lanes, len(streams.texts[0]) - 1
        if closes:
            model.close(lane)
            lane = absorbed(model, TOKENS[:12])
        else:
            kept(model, lane, at, chain(streams.texts[0][-1], [5, 6, 8]), (0, 1, 2, 3))
        before = drafted(model, lane, 9, depth=2)
        drafted(model, other, streams.texts[1][-1], depth=3)
        same(before, drafted(model, lane, 9, depth=2))
        for each in (lane, other):
            model.close(each)


if __name__ == "__main__":
    family = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_cuda(Path(folder), family)
        assert made.plan.mtp is not None
        loaded = made.model(streams=9, head=mtp_head(made.plan.mtp))
        checks = {name: check for name, check in list(vars().items()) if name.startswith("check_")}
        for name in sys.argv[2:] or checks:
            checks[name](made, loaded)
            print(name, flush=True)
