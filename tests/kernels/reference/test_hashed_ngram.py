"""The hash in integers, segments, and the gate of a table's rows."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.reference.activations import sigmoid
from tensorfold.kernels.reference.hashed_ngram import gated_value, ngram_rows, seen_tokens, wrapped
from tests.kernels.reference.rows import normal


def test_products_wrap_around_as_int64_does() -> None:
    for value, factor in [(248_319, (1 << 62) + 12_345), (3, -(1 << 62)), (7, 11), (1 << 40, 1 << 40)]:
        with np.errstate(over="ignore"):
            expected = np.array([value], np.int64) * np.array([factor], np.int64)
        assert wrapped(value * factor) == int(expected[0])


def test_nothing_is_seen_across_a_boundary() -> None:
    assert seen_tokens([4, 5], 6, 0) == [6, 5, 4]
    assert seen_tokens([4, 0], 6, 0) == [6, 0, 0]
    assert seen_tokens([0, 5], 6, 0) == [6, 5, 0]
    # A boundary token ends its own segment: it still sees what stands before it.
    assert seen_tokens([4, 5], 0, 0) == [0, 5, 4]


def test_rows_are_xored_products_modulo_each_heads_size_behind_the_heads_before() -> None:
    factors, sizes = (101, 203, 307), (53, 59, 61, 67)
    two = (9 * 101) ^ (8 * 203)
    three = two ^ (7 * 307)
    expected = [two % 53, 53 + two % 59, 112 + three % 61, 173 + three % 67]
    assert ngram_rows([9, 8, 7], factors, sizes, 2) == expected


def test_a_negative_mixture_still_names_a_row() -> None:
    factors = ((1 << 62) + 1, (1 << 61) + 3)
    mixed = wrapped(5 * factors[0]) ^ wrapped(7 * factors[1])
    assert mixed < 0 and ngram_rows([5, 7], factors, (53,), 1) == [mixed % 53]


def test_a_value_enters_each_stream_by_the_signed_root_of_its_own_closeness() -> None:
    key, query, value = normal(1, 2, 9), normal(2, 2, 9), normal(3, 9)
    query[1] = -key[1]
    made = gated_value(key, query, value)
    for stream in range(2):
        close = key[stream] @ query[stream] / 3
        assert np.allclose(made[stream], sigmoid(np.array(np.sign(close) * abs(close) ** 0.5)) * value)
    tiny = gated_value(np.full((1, 4), 1e-6), np.full((1, 4), -1e-6), np.ones(4))
    assert np.allclose(tiny, 1 / (1 + np.exp(1e-3)))
