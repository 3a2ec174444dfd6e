"""Known answers of the sampler rule, computed independently of this code."""

import math
import warnings

import numpy as np
import pytest

from tensorfold.domain.sampling import Sampling, derive_seed, draw, draw_rows, gumbel, keyed_hash, noise, weights

SEEDS = [
    ((), 6024232415158801135, 5959542543685541047),
    ((1, 2, 3), 2418267834652783048, 9112986171628125109),
    ((151644, 872, 198), 7971463466475626401, 6506835482165518251),
]

NOISE = [
    (0, 0, 0, 0x33FE8BD4F9C57863, 0.20310281705476102, -0.4662735186548661),
    (0, 1, 0, 0xF53673D646F5B4FB, 0.9578621290338194, 3.145359906226864),
    (0, 0, 1, 0x2AEA2EC8299DF491, 0.16763584505826384, -0.5799567807288937),
    (1234, 17, 42, 0xBFE8B5FDEA142378, 0.7496446366222504, 1.2442532698886273),
    (2**63 - 1, 262143, 248319, 0xB01D0F448DBB8CD9, 0.687943414913873, 0.983369302351765),
]

LOGITS = np.array([0, 1, 2, 1, -1, 0.5, 2, 0.25], dtype=np.float32)
DRAWS = [
    (Sampling(1234, 1.0, 4, 0.95), [2, 2, 3, 2, 2, 6, 1, 6, 6, 6, 2, 1]),
    (Sampling(1234, 0.7, 0, 0.9, 0.05), [2, 2, 3, 2, 2, 6, 1, 6, 6, 6, 2, 1]),
    (Sampling(derive_seed((1, 2, 3)), 1.0), [2, 2, 1, 6, 2, 6, 7, 6, 1, 6, 5, 0]),
]


@pytest.mark.parametrize(("ids", "plain", "salted"), SEEDS)
def test_a_prompt_derives_its_known_seed(ids: tuple[int, ...], plain: int, salted: int) -> None:
    assert derive_seed(ids) == plain
    assert derive_seed(np.array(ids, dtype=np.int64), salt=1) == salted


def test_a_derived_seed_fits_a_signed_integer_and_depends_on_every_id_and_the_salts_sign() -> None:
    seeds = {derive_seed([9, n], salt) for n in range(50) for salt in (-1, 0, 1)}
    assert len(seeds) == 150
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed([12, 3]) != derive_seed([1, 23])


@pytest.mark.parametrize(("seed", "position", "token", "bits", "uniform", "value"), NOISE)
def test_noise_has_its_known_values(
    seed: int, position: int, token: int, bits: int, uniform: float, value: float
) -> None:
    ids = np.array([token], dtype=np.int64)
    assert int(keyed_hash(seed, position, ids)[0]) == bits
    assert (bits >> 11) * 2.0**-53 + 2.0**-54 == uniform
    assert noise(seed, position, ids)[0] == pytest.approx(value, rel=1e-15)


def test_noise_is_finite_at_both_ends_of_the_hash() -> None:
    lowest, highest = gumbel(np.array([0, 2**64 - 1], dtype=np.uint64))
    assert lowest == pytest.approx(-math.log(54 * math.log(2)), rel=1e-15)
    assert highest == pytest.approx(53 * math.log(2), rel=1e-15)


def test_a_seed_and_a_position_count_modulo_two_to_the_64() -> None:
    ids = np.arange(5, dtype=np.int64)
    expected = keyed_hash(7, 3, ids).tolist()
    assert keyed_hash(7 + 2**64, 3, ids).tolist() == expected
    assert keyed_hash(7 - 2**64, 3 + 2**64, ids).tolist() == expected
    assert keyed_hash(np.int64(7), np.int64(3), ids.astype(np.int32)).tolist() == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(("sampling", "tokens"), DRAWS)
def test_a_row_draws_its_known_tokens(sampling: Sampling, tokens: list[int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [draw(LOGITS, position, sampling) for position in range(12)] == tokens
        assert draw_rows(np.tile(LOGITS, (12, 1)), range(12), [sampling] * 12) == tokens


def test_weights_are_whole_parts_of_two_to_the_40() -> None:
    gaps = np.array([0.0, 1.0, 10.0, 27.7, 27.8, math.inf])
    assert weights(gaps, 0.0).tolist() == [2**40, 404487723187, 49917750, 1, 0, 0]
    assert weights(gaps + 5.0, 5.0).tolist()[:3] == [2**40, 404487723187, 49917750]


def test_sampling_is_off_until_a_temperature_is_asked() -> None:
    assert Sampling() == Sampling(seed=0, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
    assert Sampling().greedy
    assert Sampling(temperature=-1.0).greedy
    assert not Sampling(temperature=1e-9).greedy
