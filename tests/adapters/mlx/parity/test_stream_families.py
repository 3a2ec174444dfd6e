"""Families of several streams against transformers: within 1e-4 everywhere, and the same best token."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.adapters.mlx.blocks.one_op import DEVICES
from tests.adapters.mlx.parity.cases import LARGEST
from tests.adapters.mlx.parity.oracles import lacking
from tests.adapters.mlx.parity.ours import differences
from tests.adapters.mlx.parity.stream_families import CASES, StreamsCase, by_transformers, digests, kept
from tests.adapters.mlx.tiny_families import TinyFamily, stepped
from tests.synthetic.plan_checkpoints import PLANS

NAMES = [case.family for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.parametrize("device", sorted(DEVICES))
@pytest.mark.slow
def test_steps_and_a_whole_prompt_give_the_kept_logits(case: StreamsCase, device: str, tmp_path: Path) -> None:
    family = TinyFamily(case.write(tmp_path / "one"), PLANS[case.family](case.config()))
    forward = family.forward(DEVICES[device]())
    steps = stepped(forward, forward.open(128), case.tokens())
    largest, flips = differences(steps, kept(case))
    assert largest <= LARGEST and flips == 0, (largest, flips)
    lane = forward.open(128)
    half = len(case.tokens()) // 2
    forward.absorb(lane, np.asarray(case.tokens()[:half]))
    assert np.array_equal(stepped(forward, lane, case.tokens()[half:]), steps[half:])
    forward.decoder.ops.close()


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_kept_logits_are_of_the_checkpoint_that_is_written_today(case: StreamsCase) -> None:
    assert digests()[case.family] == case.digest()


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.slow
def test_transformers_still_gives_the_kept_logits(case: StreamsCase) -> None:
    reason = lacking()
    if reason is not None:
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as scratch:
        made = by_transformers(case, Path(scratch) / "one")
    assert differences(made, kept(case))[0] <= LARGEST / 10
