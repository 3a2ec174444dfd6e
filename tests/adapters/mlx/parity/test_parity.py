"""Our logits against those of mlx-lm and transformers in float32: within 1e-4, and the same best token everywhere."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.adapters.mlx.parity.cases import CASES, LARGEST, Case
from tests.adapters.mlx.parity.golden import checkpoint_digest, digests, kept
from tests.adapters.mlx.parity.oracles import ORACLES, lacking
from tests.adapters.mlx.parity.ours import arithmetics, by_us, differences

NAMES = [case.name for case in CASES]
# One of each kind; `python -m tests.adapters.mlx.parity.live` runs them all.
LIVE = [
    case for case in CASES if case.name in ("llama3", "yarn", "interleaved", "window_in_some_layers", "affine_3_128")
]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.slow
def test_logits_equal_the_kept_ones_of_both_oracles(case: Case, tmp_path: Path) -> None:
    for way, ops in arithmetics(case).items():
        ours = by_us(case, tmp_path / way, ops)
        for name, theirs in kept(case).items():
            largest, flips = differences(ours, theirs)
            assert largest <= LARGEST and flips == 0, (way, name, largest, flips)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_kept_logits_are_of_the_checkpoint_that_is_built_today(case: Case) -> None:
    assert digests()[case.name] == checkpoint_digest(case)


def test_every_oracle_stands_behind_every_form_it_can_express() -> None:
    for case in CASES:
        expected = {
            name
            for name, fields in (("mlx_lm", case.mlx_lm), ("transformers", case.transformers))
            if fields is not None
        }
        assert set(kept(case)) == expected != set()


def test_the_oracles_still_give_the_kept_logits() -> None:
    reason = lacking()
    if reason is not None:
        pytest.skip(reason)
    for case in LIVE:
        for name, oracle in ORACLES.items():
            with tempfile.TemporaryDirectory() as scratch:
                made = oracle(case, Path(scratch))
            if made is not None:
                assert differences(made, kept(case)[name])[0] <= LARGEST / 10
