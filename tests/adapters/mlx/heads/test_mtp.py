"""A model's own head drafts what the float64 oracle drafts, whatever windows its rows came in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.heads.mtp import MtpLane
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.application.ports.target_model import Chain, ProposeSpec
from tensorfold.application.settings import DraftSettings
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain, tree
from tests.adapters.mlx.tiny_families import TinyFamily, kept, stepped, tiny_family
from tests.reference.reference_heads import mtp_logits
from tests.reference.reference_model import ReferenceModel

FAMILIES = ("qwen3_5", "nemotron_h", "glm5_next", "qwen4_exp")
TOKENS = [3 + 37 * at % 250 for at in range(14)]
GREEDY = Sampling()
OPS: dict[str, Callable[[], RowOps[Any]]] = {"cpu": CpuRows, "library": lambda: LibraryRows("float32")}


@pytest.fixture(scope="module", params=FAMILIES)
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyFamily:
    return tiny_family(tmp_path_factory.mktemp(request.param), request.param)


def drafted(lane: Any, pending: int, depth: int = 4, sampling: Sampling = GREEDY, least: float = 0.0) -> Chain:
    answer = lane.head.propose(ProposeSpec(0, pending, depth, sampling, least))
    assert isinstance(answer, Chain)
    return answer


@pytest.mark.parametrize("device", OPS)
@pytest.mark.slow
def test_a_chain_is_the_oracles_chain(one: TinyFamily, device: str) -> None:
    forward = one.forward(OPS[device]())
    lane = forward.open(64, drafts=True)
    forward.absorb(lane, np.asarray(TOKENS[:-1]), 5)
    answer = drafted(lane, TOKENS[-1])
    reference = ReferenceModel.load(one.folder, one.plan)
    assert one.plan.mtp is not None
    spans = one.plan.mtp.draft_ids or ((0, one.plan.head.vocabulary),)
    ids = np.concatenate([np.arange(*span) for span in spans])
    ids = ids[ids < one.plan.head.vocabulary]
    for depth, token in enumerate(answer.tokens):
        logits = mtp_logits(reference, TOKENS, answer.tokens[:depth])[-1][ids]
        assert ids[logits.argmax()] == token
        chances = np.exp(logits - logits.max())
        assert answer.confidence[depth] == pytest.approx(chances.max() / chances.sum(), abs=1e-4)


@pytest.mark.slow
def test_what_a_head_absorbed_does_not_depend_on_windows_trees_or_rejected_rows(one: TinyFamily) -> None:
    forward = one.forward(CpuRows())
    serial, other = forward.open(64, drafts=True), forward.open(64, drafts=True)
    forward.absorb(serial, np.asarray(TOKENS[:4]))
    forward.absorb(other, np.asarray(TOKENS[:4]), 3)
    stepped(forward, serial, TOKENS[4:12])
    kept(forward, other, chain(TOKENS[4], [TOKENS[5], 9, 8]), (0, 1))
    kept(forward, other, tree(TOKENS[6], [1, TOKENS[7], 2, TOKENS[8]], [0, 0, 2, 2]), (0, 2, 4))
    forward.logits(other, chain(7, [8]))
    other.discard()
    kept(forward, other, chain(TOKENS[9], TOKENS[10:12]), (0, 1, 2))
    assert serial.head is not None and other.head is not None
    assert serial.head.export() == other.head.export()
    assert drafted(serial, TOKENS[12]) == drafted(other, TOKENS[12])


def test_drafting_leaves_the_head_as_it_was(one: TinyFamily) -> None:
    forward = one.forward(CpuRows())
    lane = forward.open(64, drafts=True)
    forward.absorb(lane, np.asarray(TOKENS))
    assert lane.head is not None
    before = lane.head.export()
    first = drafted(lane, 11, sampling=Sampling(seed=3, temperature=1.2))
    assert drafted(lane, 11, sampling=Sampling(seed=3, temperature=1.2)) == first
    assert lane.head.export() == before


def test_an_exported_head_drafts_on_where_it_stood(one: TinyFamily) -> None:
    forward = one.forward(CpuRows())
    lane, other = forward.open(64, drafts=True), forward.open(64, drafts=True)
    forward.absorb(lane, np.asarray(TOKENS))
    assert lane.head is not None and other.head is not None
    other.head.load(lane.head.export(), len(TOKENS))
    assert drafted(other, 17) == drafted(lane, 17)
    twin = lane.fork()
    stepped(forward, twin, [4, 5])
    assert drafted(other, 17) == drafted(lane, 17)


def test_a_chain_ends_before_a_draft_that_is_not_sure_enough(one: TinyFamily) -> None:
    forward = one.forward(CpuRows())
    lane = forward.open(64, drafts=True)
    forward.absorb(lane, np.asarray(TOKENS))
    whole = drafted(lane, 11)
    assert len(whole.tokens) == 4
    assert drafted(lane, 11, least=1.0).tokens == whole.tokens[:1]


def test_a_head_that_is_not_wanted_is_not_loaded(one: TinyFamily) -> None:
    forward = one.forward(CpuRows(), DraftSettings(mtp_drafts=0))
    assert forward.head is None and forward.open(8, drafts=True).head is None


def test_a_head_that_cannot_absorb_costs_its_drafts_and_nothing_else(
    one: TinyFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = one.forward(CpuRows())
    lane, sound = forward.open(64, drafts=True), forward.open(64)

    def broken(self: MtpLane[Any], rows: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(MtpLane, "absorb", broken)
    forward.absorb(lane, np.asarray(TOKENS))
    forward.absorb(sound, np.asarray(TOKENS))
    assert lane.head is None and lane.length == len(TOKENS)
    assert np.array_equal(stepped(forward, lane, [5]), stepped(forward, sound, [5]))


@pytest.mark.parametrize("fault", ("norm", "trim"))
@pytest.mark.slow
def test_a_faulty_head_is_told_from_the_oracle(one: TinyFamily, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first test would miss if it compared nothing: a norm left out, an entry too many."""
    forward = one.forward(CpuRows())
    lane, sound = forward.open(64, drafts=True), forward.open(64, drafts=True)
    forward.absorb(sound, np.asarray(TOKENS))
    head: Any = forward.head
    if fault == "norm":
        monkeypatch.setattr(head.join, "_hidden_norm", lambda rows: rows * 0.25)
        forward.absorb(lane, np.asarray(TOKENS))
    else:
        forward.absorb(lane, np.asarray([*TOKENS[:-1], TOKENS[-2], TOKENS[-1]]))
    assert drafted(lane, 11).confidence != drafted(sound, 11).confidence
