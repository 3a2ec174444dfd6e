"""Whole listed families against transformers and mlx-lm in float32, and every way of running them bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.forward import Forward, LaneState
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.application.settings import DraftSettings
from tensorfold.domain.windows import Window, chain, tree
from tests.adapters.mlx.parity.families import CASES, TOKENS, FamilyCase, Logits, digest, digests, kept
from tests.adapters.mlx.parity.oracles import lacking
from tests.adapters.mlx.parity.ours import differences
from tests.adapters.mlx.tiny_families import TinyFamily
from tests.synthetic.plan_checkpoints import PLANS

LARGEST = 1e-4
NAMES = [case.name for case in CASES]


@pytest.fixture(scope="module", params=CASES, ids=NAMES)
def case(request: Any) -> FamilyCase:
    found: FamilyCase = request.param
    return found


@pytest.fixture(scope="module")
def folder(case: FamilyCase, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return case.write(tmp_path_factory.mktemp(case.name) / "checkpoint")


@pytest.fixture(scope="module", params=["rows", "stored", "library"])
def forward(case: FamilyCase, folder: Path, request: Any) -> Iterator[Forward[Any]]:
    ways: dict[str, RowOps[Any]] = {
        "rows": CpuRows(),
        "stored": CpuRows(unpack=False),
        "library": LibraryRows("float32"),
    }
    plan = PLANS[case.family](json.loads((folder / "config.json").read_text()))
    made = TinyFamily(folder, plan).forward(ways[request.param], DraftSettings(mtp_drafts=0))
    yield made
    made.decoder.ops.close()


def read(forward: Forward[Any], lane: LaneState[Any], tokens: list[int], rows: int) -> Logits:
    """Logits of chains of `rows` rows, all kept."""
    parts = []
    for at in range(0, len(tokens), rows):
        part = tokens[at : at + rows]
        parts.append(forward.logits(lane, chain(part[0], part[1:])))
        lane.keep(tuple(range(len(part))))
    return np.concatenate(parts)


def exported(lane: LaneState[Any]) -> list[tuple[bytes, ...]]:
    return [state.export() for state in lane.layers]


def test_the_kept_logits_are_of_this_checkpoint(case: FamilyCase, folder: Path) -> None:
    found = digest(folder) == digests()[case.name]
    assert found, "the tiny checkpoint is another; run python -m tests.adapters.mlx.parity.families"


def test_logits_equal_the_oracles_in_steps_windows_and_at_once(case: FamilyCase, forward: Forward[Any]) -> None:
    tokens = case.tokens().tolist()
    serial = forward.open(TOKENS)
    steps = read(forward, serial, tokens, 1)
    largest, flips = differences(steps, kept(case))
    assert largest <= LARGEST and flips == 0, (largest, flips)
    for rows in (5, TOKENS):
        lane = forward.open(TOKENS)
        assert np.array_equal(read(forward, lane, tokens, rows), steps), rows
        assert exported(lane) == exported(serial), rows


def test_a_tree_leaves_what_its_path_would(case: FamilyCase, forward: Forward[Any]) -> None:
    tokens = case.tokens().tolist()
    for past in (17, 62):
        lane = forward.open(TOKENS)
        read(forward, lane, tokens[:past], past)
        serial = lane.fork()
        wanted = read(forward, serial, tokens[past : past + 3], 1)
        window, path = _tree_around(tokens[past : past + 3])
        made = forward.logits(lane, window)
        assert np.array_equal(made[list(path)], wanted), past
        lane.keep(path)
        assert exported(lane) == exported(serial), past
        follow = tokens[past + 3 : past + 8]
        assert np.array_equal(read(forward, lane, follow, 5), read(forward, serial, follow, 1)), past


def _tree_around(path: list[int]) -> tuple[Window, tuple[int, ...]]:
    """Three right rows with a wrong one before each of the last two and a wrong one at the end."""
    return tree(path[0], [9, path[1], 8, path[2], 7], [0, 0, 2, 2, 4]), (0, 2, 4)


def test_the_oracles_still_give_the_kept_logits(case: FamilyCase, tmp_path: Path) -> None:
    reason = lacking()
    if reason is not None:
        pytest.skip(reason)
    assert differences(case.theirs(tmp_path / "theirs"), kept(case))[0] <= LARGEST / 10
