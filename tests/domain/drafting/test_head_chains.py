"""Where a head's confidences end its chain, and what its drafts are worth."""

from __future__ import annotations

from math import inf, nan

import pytest

from tensorfold.domain.drafting.head_chains import chain_chances, confident


@pytest.mark.parametrize(
    ("confidence", "least", "whole_run", "stay"),
    [
        ((0.9, 0.8, 0.7), 0.0, False, 3),
        ((0.9, 0.8, 0.7), 0.75, False, 2),
        ((0.1, 0.9), 0.75, False, 2),
        ((0.1, 0.2), 0.75, False, 1),
        ((0.9, 0.5, 0.4, 0.9), 0.2, True, 2),
        ((0.1, 0.9), 0.2, True, 1),
        ((0.9, nan, 0.9), 0.0, False, 1),
        ((nan, 0.9), 0.0, True, 0),
        ((0.9, inf), 0.0, False, 1),
        ((), 0.5, False, 0),
    ],
)
def test_a_chain_ends_before_a_draft_it_is_not_sure_of(
    confidence: tuple[float, ...], least: float, whole_run: bool, stay: int
) -> None:
    assert confident(confidence, least, whole_run=whole_run) == stay


def test_chances_are_products_of_confidences_within_their_range() -> None:
    assert chain_chances((0.9, 0.5, 0.5)) == pytest.approx((0.9, 0.45, 0.225))
    assert chain_chances((1.5, -1.0, 0.5)) == (1.0, 0.0, 0.0)
    assert chain_chances(()) == ()
