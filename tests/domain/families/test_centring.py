"""Norms stored around zero or around one are told apart by their means."""

from __future__ import annotations

import pytest

from tensorfold.domain.families.centring import stored_around_zero
from tensorfold.domain.families.fields import ConfigError


def test_means_near_one_or_near_zero_decide() -> None:
    assert stored_around_zero([0.02, -0.1, 0.2, 0.0, 0.1, -0.3, 0.05, 0.01])
    assert not stored_around_zero([0.9, 1.1, 1.0, 1.3, 0.8, 1.0, 0.95, 1.02])


def test_one_stray_in_ten_does_not_change_the_answer() -> None:
    assert stored_around_zero([0.0] * 9 + [0.9])
    assert not stored_around_zero([1.0] * 9 + [0.1])


@pytest.mark.parametrize(
    "means",
    [
        [],
        [1.0] * 7,
        [0.0] * 4 + [1.0] * 4,
        [2.0] * 8,
        [0.6] * 8,
        [0.3] * 8,
        [-0.8] * 8,
        [1.0] * 8 + [0.0] * 2,
        [0.0] * 8 + [1.0] * 2,
        [float("nan")] * 8,
        [0.0] * 10 + [float("nan")],
        [1.0] * 10 + [float("inf")],
    ],
)
def test_means_of_neither_kind_are_refused(means: list[float]) -> None:
    with pytest.raises(ConfigError, match=f"neither around 0 nor around 1 .{len(means)} norms looked at"):
        stored_around_zero(means)
