"""Attention over latents: its two forms agree, and agree with ordinary attention over expanded keys and values."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.reference.attention import attend
from tensorfold.kernels.reference.latent_attention import attend_absorbed, attend_expanded
from tests.kernels.reference.rows import normal

QUERY, LATENTS = normal(1, 3, 6), normal(2, 9, 5)
KEY_UP, VALUE_UP = normal(3, 3, 6, 5), normal(4, 3, 7, 5)
READS = [0, 2, 3, 8]


def test_the_absorbed_form_equals_the_expanded_one() -> None:
    turned = normal(5, 3, 4), normal(6, 9, 4)
    for parts in (None, turned):
        one = attend_expanded(QUERY, LATENTS, READS, KEY_UP, VALUE_UP, 0.3, parts)
        other = attend_absorbed(QUERY, LATENTS, READS, KEY_UP, VALUE_UP, 0.3, parts)
        assert one.shape == (3, 7) and np.abs(one - other).max() < 1e-12


def test_rotated_parts_take_part_in_the_scores() -> None:
    turned = normal(5, 3, 4), normal(6, 9, 4)
    plain, other = (attend_absorbed(QUERY, LATENTS, READS, KEY_UP, VALUE_UP, 0.3, p) for p in (None, turned))
    assert np.abs(plain - other).max() > 1e-3


def test_it_is_attention_with_keys_and_values_of_each_head() -> None:
    keys = np.einsum("hkc,tc->thk", KEY_UP, LATENTS)
    values = np.einsum("hvc,tc->thv", VALUE_UP, LATENTS)
    expected = attend(QUERY[None], keys, values, [READS], 0.3)[0]
    assert np.abs(attend_absorbed(QUERY, LATENTS, READS, KEY_UP, VALUE_UP, 0.3) - expected).max() < 1e-12
