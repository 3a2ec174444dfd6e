"""The draws as random numbers: their distribution is the softmax, and positions, ids and seeds do not know each other.

Seeds are fixed, so the figures are too; the bounds are the 99.9% points of their chi-square distributions.
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.domain.sampling import Sampling, draw, gumbel, keyed_hash, noise

DRAWS = 200_000
FEWER = 60_000
ROW = np.array([2.0, 1.5, 0.0, -1.0, 1.5, 0.25, -2.0, 1.0], dtype=np.float32)
IDS = np.arange(len(ROW), dtype=np.int64)


def noise_table(seed: int, positions: range, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Noise [positions, ids]."""
    return gumbel(np.stack([keyed_hash(seed, position, ids) for position in positions]))


def chi_square(counts: NDArray[np.int64], shares: NDArray[np.float64]) -> float:
    expected = shares * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.slow
def test_two_hundred_thousand_draws_follow_the_softmax() -> None:
    drawn = (ROW / 0.8 + noise_table(77, range(DRAWS), IDS)).argmax(axis=1)
    sampling = Sampling(77, 0.8)
    assert [draw(ROW, position, sampling) for position in range(0, DRAWS, 101)] == drawn[::101].tolist()
    shares = np.exp(ROW.astype(np.float64) / 0.8)
    assert chi_square(np.bincount(drawn, minlength=8), shares / shares.sum()) < 24.32  # 7 degrees of freedom


@pytest.mark.slow
def test_draws_with_every_cut_follow_the_softmax_of_what_is_kept() -> None:
    row = np.log(np.array([0.3, 0.25, 0.2, 0.15, 0.06, 0.04], dtype=np.float32))
    drawn = [draw(row, position, Sampling(5, 1.0, 5, 0.9, 0.4)) for position in range(8_000)]
    counts = np.bincount(drawn, minlength=6)
    assert counts[4:].sum() == 0
    assert chi_square(counts[:4], np.array([0.3, 0.25, 0.2, 0.15]) / 0.9) < 16.27  # 3 degrees of freedom


@pytest.mark.slow
def test_draws_at_neighbouring_positions_are_independent() -> None:
    drawn = noise_table(3, range(FEWER), np.arange(6, dtype=np.int64)).argmax(axis=1)
    for apart in (1, 2, 17):
        pairs = np.bincount(drawn[:-apart] * 6 + drawn[apart:], minlength=36)
        assert chi_square(pairs, np.full(36, 1 / 36)) < 66.62  # 35 degrees of freedom


@pytest.mark.slow
def test_draws_under_neighbouring_seeds_are_independent() -> None:
    one, two = (noise_table(seed, range(FEWER), np.arange(6)).argmax(axis=1) for seed in (8, 9))
    assert chi_square(np.bincount(one * 6 + two, minlength=36), np.full(36, 1 / 36)) < 66.62


def test_the_noise_of_neighbouring_ids_is_uncorrelated() -> None:
    values = noise(11, 0, np.arange(DRAWS, dtype=np.int64))
    assert abs(float(values.mean()) - 0.5772156649) < 4 * np.pi / np.sqrt(6 * DRAWS)
    assert abs(float(values.var()) - np.pi**2 / 6) < 0.03
    for apart in (1, 2, 64):
        assert abs(float(np.corrcoef(values[:-apart], values[apart:])[0, 1])) < 4 / np.sqrt(DRAWS)
