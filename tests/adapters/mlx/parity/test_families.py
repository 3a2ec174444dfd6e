"""Every family and every published form: logits in all ways equal those of the libraries and of float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.adapters.mlx.parity.families import WAYS, Compared, devices, ours, theirs
from tests.reference.parity_cases import CASES, Case

NAMES = [case.name for case in CASES]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_logits_equal_every_oracles_and_each_way_has_the_same_bits(case: Case, tmp_path: Path) -> None:
    folder = case.write(tmp_path)
    expected = theirs(case, folder, live=False)
    for device, ops in devices(case).items():
        made = dict(ours(case, folder, ops))
        assert set(made) == set(WAYS)
        steps = made["one by one"]
        assert all(np.array_equal(logits, steps) for logits in made.values())
        for oracle, (positions, rows) in expected.items():
            compared = Compared()
            compared.take(steps[positions], rows)
            assert compared.holds, (device, oracle, compared)
