"""A drafter's blocks agree with the float64 oracle: backbone, convolutions, selector and what it keeps of a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.application.ports.target_model import Lattice, ProposeSpec
from tensorfold.application.settings import DraftSettings
from tensorfold.domain.drafting.lattice import search
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain, tree
from tests.adapters.mlx.tiny_families import TinyFamily, kept, stepped, tiny_family, with_drafter
from tests.reference.reference_heads import ReferenceDrafter
from tests.reference.reference_model import ReferenceModel

OPS: dict[str, Callable[[], RowOps[Any]]] = {"cpu": CpuRows, "library": lambda: LibraryRows("float32")}
TOKENS = [3 + 37 * at % 250 for at in range(30)]
GREEDY = Sampling()
DEPTH = 7


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> TinyFamily:
    folder = tmp_path_factory.mktemp("dflash")
    return with_drafter(tiny_family(folder, "qwen3_5"), folder)[0]


@pytest.fixture(scope="module")
def oracle(one: TinyFamily) -> ReferenceDrafter:
    assert one.drafter is not None
    target = ReferenceModel.load(one.folder, one.plan)
    return ReferenceDrafter.load(one.drafter.facts.folder, one.drafter.plan, target)


def drafted(lane: Any, pending: int, depth: int = DEPTH) -> Lattice:
    answer = lane.head.propose(ProposeSpec(0, pending, depth, GREEDY))
    assert isinstance(answer, Lattice)
    return answer


@pytest.mark.parametrize("count", (3, 9, 30), ids="{} tokens before".format)
@pytest.mark.parametrize("device", OPS)
@pytest.mark.slow
def test_candidates_and_pairs_are_the_oracles(
    one: TinyFamily, oracle: ReferenceDrafter, device: str, count: int
) -> None:
    forward = one.forward(OPS[device]())
    lane = forward.open(64, drafts=True)
    forward.absorb(lane, np.asarray(TOKENS[: count - 1]), 4)
    lattice = drafted(lane, TOKENS[count - 1])
    block = oracle.dflash(TOKENS[:count], DEPTH + 1)
    predecessor, successor = (oracle.reader[f"selector.{name}"] for name in ("predecessor", "successor"))
    projection = oracle.reader["selector.projection"]
    before = np.asarray([TOKENS[count - 1]])
    for depth, (ids, scores, pair) in enumerate(zip(lattice.ids, lattice.scores, lattice.pair, strict=True)):
        assert np.abs(scores - block.logits[depth][ids]).max() <= 1e-5
        assert set(ids.tolist()) == set(np.argsort(-block.logits[depth])[: len(ids)].tolist())
        mixed = projection @ block.hidden[depth]
        assert np.abs(pair - (predecessor[before] * mixed) @ successor[ids].T).max() <= 1e-5
        before = ids


def test_the_selectors_own_chain_is_found_in_the_lattice(one: TinyFamily, oracle: ReferenceDrafter) -> None:
    forward = one.forward(CpuRows())
    lane = forward.open(64, drafts=True)
    forward.absorb(lane, np.asarray(TOKENS[:-1]))
    lattice = drafted(lane, TOKENS[-1])
    wanted = oracle.chain(TOKENS[-1], oracle.dflash(TOKENS, DEPTH + 1))
    before = 0
    for depth, token in enumerate(wanted):
        best = int((lattice.scores[depth] + lattice.pair[depth][before]).argmax())
        assert lattice.ids[depth][best] == token
        before = best


def test_what_it_keeps_does_not_depend_on_windows_trees_or_rejected_rows(one: TinyFamily) -> None:
    forward = one.forward(CpuRows())
    serial, other = forward.open(64, drafts=True), forward.open(64, drafts=True)
    forward.absorb(serial, np.asarray(TOKENS[:4]))
    forward.absorb(other, np.asarray(TOKENS[:4]), 3)
    stepped(forward, serial, TOKENS[4:10])
    kept(forward, other, chain(TOKENS[4], [TOKENS[5], 9, 8]), (0, 1))
    kept(forward, other, tree(TOKENS[6], [1, TOKENS[7], 2, TOKENS[8]], [0, 0, 2, 2]), (0, 2, 4))
    forward.logits(other, chain(7, [8]))
    other.discard()
    stepped(forward, other, TOKENS[9:10])
    left, right = drafted(serial, 5), drafted(other, 5)
    # A product of several rows may round otherwise than of one: the head is no part of what must keep its bits.
    for a, b in zip(left.scores, right.scores, strict=True):
        assert np.abs(np.sort(a) - np.sort(b)).max() <= 1e-5


def test_a_block_is_cut_into_a_tree_that_begins_with_its_likeliest_token(one: TinyFamily) -> None:
    forward = one.forward(CpuRows())
    lane = forward.open(64, drafts=True)
    forward.absorb(lane, np.asarray(TOKENS))
    lattice = drafted(lane, 11, 15)
    found = search(lattice, len(TOKENS), GREEDY, 15, "head")
    assert found is not None and len(found) == 15
    first = lattice.scores[0] + 0.6 * lattice.pair[0][0]
    assert found.tokens[0] == lattice.ids[0][int(first.argmax())]


def test_an_exported_drafter_drafts_on_where_it_stood(one: TinyFamily) -> None:
    forward = one.forward(CpuRows())
    lane, other = forward.open(64, drafts=True), forward.open(64, drafts=True)
    forward.absorb(lane, np.asarray(TOKENS))
    assert lane.head is not None and other.head is not None
    other.head.load(lane.head.export(), len(TOKENS))
    for a, b in zip(drafted(lane, 3).scores, drafted(other, 3).scores, strict=True):
        assert np.array_equal(a, b)


def test_narrowed_weights_draft_otherwise_and_leave_logits_alone(one: TinyFamily) -> None:
    plain, narrow = one.forward(CpuRows()), one.forward(CpuRows(), DraftSettings(drafter_bits=4))
    lanes = [forward.open(64, drafts=True) for forward in (plain, narrow)]
    logits = [stepped(forward, lane, TOKENS[:6]) for forward, lane in zip((plain, narrow), lanes, strict=True)]
    assert np.array_equal(logits[0], logits[1])
    assert not np.array_equal(drafted(lanes[0], 3).scores[0], drafted(lanes[1], 3).scores[0])
