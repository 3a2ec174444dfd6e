"""The device's sampler against the domain's rule, draw for draw, its kernels run in numpy: neither torch nor Triton."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.domain.sampling import Sampling, derive_seed, draw
from tests.kernels.triton.numpy_triton import Memory, kernels_of

Floats = NDArray[np.float32]
KINDS = SimpleNamespace(int32=np.int32, int64=np.int64, float32=np.float32, float64=np.float64)
KNOWN = np.array([0, 1, 2, 1, -1, 0.5, 2, 0.25], np.float32)
KNOWN_DRAWS = (
    (Sampling(1234, 1.0, 4, 0.95), [2, 2, 3, 2, 2, 6, 1, 6, 6, 6, 2, 1]),
    (Sampling(1234, 0.7, 0, 0.9, 0.05), [2, 2, 3, 2, 2, 6, 1, 6, 6, 6, 2, 1]),
    (Sampling(derive_seed((1, 2, 3)), 1.0), [2, 2, 1, 6, 2, 6, 7, 6, 1, 6, 5, 0]),
)


@pytest.fixture(scope="module")
def sampler() -> Any:
    """The kernels, with a list so short and blocks so small that every way through them is taken by short rows."""
    made = kernels_of("sampler")
    made.LISTED, made._BLOCK, made._SETTLE_LANES, made._FEW_PROGRAMS = 160, 256, 128, 60
    return made


def drawn(sampler: Any, logits: Floats, positions: list[int], settings: list[Sampling], room: Any = None) -> list[int]:
    rows = len(logits)
    tokens = np.full(rows, -2, np.int32)
    divisors = [-1.0 if s.greedy else -min(1e200, max(1e-6, s.temperature)) for s in settings]
    reaches = [-min(0.0, math.log(s.min_p)) if s.min_p > 0 else math.inf for s in settings]
    rules = sampler.Rules(
        kinds=Memory(np.array([sampler.GREEDY if s.greedy else sampler.SAMPLED for s in settings], np.int32)),
        seeds=Memory(np.array([s.seed % 2**64 for s in settings], np.uint64).view(np.int64)),
        divisors=Memory(np.array(divisors)),
        top_ks=Memory(np.array([max(s.top_k, 0) for s in settings], np.int32)),
        top_ps=Memory(np.array([s.top_p for s in settings])),
        reaches=Memory(np.array(reaches)),
        positions=Memory(np.array(positions, np.int64)),
        masked=Memory(np.zeros(rows, np.int32)),
    )
    with np.errstate(all="ignore"):
        sampler.draw_rows(Memory(logits), rules, room or scratch(sampler, rows), Memory(tokens))
    return tokens.tolist()


def scratch(sampler: Any, rows: int) -> Any:
    return sampler.scratch(rows, lambda shape, kind: Memory(np.zeros(shape, kind)), KINDS)


def shaped(chance: np.random.Generator, size: int) -> Floats:
    """A row of logits: bell-shaped, peaked, in steps that tie, flat, or with what is no number."""
    row: Floats = chance.standard_normal(size).astype(np.float32)
    form = chance.integers(0, 6)
    if form == 1:
        row = (2.5 * row - 3).astype(np.float32)
        row[chance.integers(0, size, 9)] += np.float32(12)
    elif form == 2:
        row = np.round(row * 2) / np.float32(2)
    elif form == 3:
        row[:] = np.float32(-0.0)
        row[::3] = 0.0
    elif form == 4:
        row[chance.integers(0, size, size // 3)] = -np.inf
        row[chance.integers(0, size, size // 4)] = np.nan
    elif form == 5:
        row[chance.integers(0, size)] = np.inf
    return row


def asked(chance: np.random.Generator) -> Sampling:
    """Settings as requests have them, and stranger ones."""
    return Sampling(
        int(chance.integers(0, 2**63)) * int(chance.integers(1, 3)),
        float(chance.choice([0.0, 0.3, 0.7, 1.0, 1.0, 1.0, 1.7, 5.0, 1e-9, 1e300])),
        int(chance.choice([0, 0, 0, 1, 2, 5, 20, 80, 700])),
        float(chance.choice([1.0, 0.95, 0.95, 0.9, 0.5, 0.05, 0.999, 1e-300])),
        float(chance.choice([0.0, 0.0, 0.05, 0.3, 1.0])),
    )


def compared(sampler: Any, draws: int, seed: int) -> None:
    chance, room = np.random.default_rng(seed), scratch(sampler, 50)
    for _ in range(draws // 50):
        size = int(chance.integers(5, 300))
        rows = np.stack([shaped(chance, size) for _ in range(50)])
        settings = [asked(chance) for _ in range(50)]
        positions = chance.integers(0, 2**40, 50).tolist()
        ours = drawn(sampler, rows, positions, settings, room)
        for at, token in enumerate(ours):
            assert token == draw(rows[at], positions[at], settings[at]), (size, positions[at], settings[at])


@pytest.mark.parametrize(("sampling", "tokens"), KNOWN_DRAWS)
def test_a_row_draws_its_known_tokens(sampler: Any, sampling: Sampling, tokens: list[int]) -> None:
    assert drawn(sampler, np.tile(KNOWN, (12, 1)), list(range(12)), [sampling] * 12) == tokens


def test_rows_of_every_form_draw_what_the_domain_draws(sampler: Any) -> None:
    compared(sampler, 150, 1)


@pytest.mark.slow
def test_ten_thousand_rows_draw_what_the_domain_draws(sampler: Any) -> None:
    compared(sampler, 10_000, 2)


@pytest.mark.slow
def test_whole_vocabularies_draw_what_the_domain_draws() -> None:
    whole, chance = kernels_of("sampler"), np.random.default_rng(3)
    settings = [Sampling(5, 1.0, 0, 0.95), Sampling(6, 0.8, 20, 0.95), Sampling(7, 1.0), Sampling(8, 1.0, 50_000, 0.9)]
    for size in (131_072, 248_320):
        rows = np.stack([shaped(chance, size) for _ in settings])
        rows[0] = chance.standard_normal(size)
        ours = drawn(whole, rows, [9, 8, 7, 6], settings)
        assert ours == [draw(row, at, s) for row, at, s in zip(rows, (9, 8, 7, 6), settings, strict=True)]


def test_noise_that_rounding_swallows_leaves_the_lowest_id_whichever_block_it_is_in(sampler: Any) -> None:
    row = np.zeros((8, 700), np.float32)
    row[:, [300, 610, 520]] = 1e20
    row[1::2, 20] = 1e20
    settings = [Sampling(seed, 1.0, 0, 0.9) if seed % 4 else Sampling(seed, 1e-6) for seed in range(8)]
    assert drawn(sampler, row, list(range(8)), settings) == [300, 20] * 4


def test_a_draw_that_broke_off_leaves_nothing_to_the_next(sampler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    room, setting = scratch(sampler, 1), Sampling(3, 1.0, 0, 0.9)
    chance = np.random.default_rng(5)
    high, low = (chance.standard_normal((1, 200)).astype(np.float32) + shift for shift in (90, 0))
    with monkeypatch.context() as broken:
        broken.setattr(sampler, "_fine", None)
        with pytest.raises(TypeError):
            drawn(sampler, high.astype(np.float32), [1], [setting], room)
    for row in (low.astype(np.float32), high.astype(np.float32)):
        assert drawn(sampler, row, [1], [setting], room) == [draw(row[0], 1, setting)]


def test_a_cut_through_a_flat_row_never_makes_the_whole_row_be_read_again() -> None:
    """Wherever it lies in a step: a row that is read again costs a hundred times a draw."""
    whole, chance = kernels_of("sampler"), np.random.default_rng(4)
    row = chance.standard_normal((1, 10_000)).astype(np.float32)
    whole.LISTED, room = 600, scratch(whole, 1)
    again: list[bool] = []
    plain = whole._candidate

    def watched(*given: Any) -> Any:
        if not given[8]:  # of no list
            again.append(True)
        return plain(*given)

    whole._candidate = watched
    for top_p in np.linspace(0.05, 0.995, 40).tolist():
        setting = Sampling(3, 1.0, 0, top_p)
        assert drawn(whole, row, [5], [setting], room) == [draw(row[0], 5, setting)]
    assert not again
