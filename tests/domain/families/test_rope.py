"""Rotary settings in both spellings, their frequencies against published numbers, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tensorfold.domain.families.fields import ConfigError, Fields
from tensorfold.domain.families.ops import Rope
from tensorfold.domain.families.rope import inverse_frequencies, read_rope

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 512}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}


def read(**config: Any) -> Rope:
    return read_rope(Fields(config), 16)


def refusal(**config: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(**config)
    return caught.value.message


def test_without_settings_frequencies_are_plain_powers_of_theta() -> None:
    rope = read()
    assert rope == Rope(16, 10_000.0)
    np.testing.assert_allclose(inverse_frequencies(rope), [10_000.0 ** (-j / 8) for j in range(8)], rtol=1e-15)


def test_both_spellings_and_both_type_keys_mean_the_same() -> None:
    older = read(rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2.0})
    newer = read(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5})
    assert older == newer == Rope(16, 5e5, "linear", factor=2.0)
    assert read(rope_parameters={"rope_type": "default", "rope_theta": 5e5}) == Rope(16, 5e5)
    assert read(rope_scaling=None, rope_parameters={}) == Rope(16, 10_000.0)


def test_two_blocks_must_agree() -> None:
    block = {"rope_type": "linear", "factor": 2.0}
    assert read(rope_scaling=block, rope_parameters=block).factor == 2.0
    assert "disagree" in refusal(rope_scaling=block, rope_parameters=block | {"factor": 4.0})


def test_linear_divides_every_frequency_by_its_factor() -> None:
    plain, linear = Rope(16, 1e4), Rope(16, 1e4, "linear", factor=4.0)
    np.testing.assert_array_equal(inverse_frequencies(linear), inverse_frequencies(plain) / 4.0)


def test_llama3_frequencies_equal_published_ones() -> None:
    rope = read(rope_scaling=LLAMA3)
    assert (rope.form, rope.factor, rope.original, rope.low_factor, rope.high_factor) == ("llama3", 8, 512, 1, 4)
    # mlx-lm 0.32.2 on the same settings.
    published = [1.0, 0.3162278, 0.1, 0.01849668, 0.00125, 0.0003952847, 0.000125, 3.952847e-05]
    np.testing.assert_allclose(inverse_frequencies(rope), published, rtol=1e-6)


def test_yarn_frequencies_equal_published_ones() -> None:
    rope = read(rope_scaling=YARN)
    assert (rope.form, rope.beta_fast, rope.beta_slow, rope.truncate) == ("yarn", 32, 1, True)
    assert rope.attention_factor == 0.1 * math.log(4.0) + 1.0
    # mlx-lm 0.32.2 on the same settings.
    published = [1.0, 0.2569351, 0.0625, 0.01383497, 0.0025, 0.0007905694, 0.00025, 7.905694e-05]
    np.testing.assert_allclose(inverse_frequencies(rope), published, rtol=1e-6)


def test_yarn_without_truncation_keeps_the_ends_of_its_ramp_where_they_fall() -> None:
    rope = read(rope_scaling=YARN | {"truncate": False})
    whole, exact = inverse_frequencies(read(rope_scaling=YARN)), inverse_frequencies(rope)
    assert not rope.truncate
    ends = [16 * math.log(512 / (turns * 2 * math.pi)) / (2 * math.log(1e4)) for turns in (32.0, 1.0)]
    ramp = np.clip((np.arange(8) - ends[0]) / (ends[1] - ends[0]), 0, 1)
    plain = inverse_frequencies(Rope(16, 1e4))
    np.testing.assert_allclose(exact, plain * (1 - ramp) + plain / 4 * ramp, rtol=1e-12)
    assert not np.array_equal(whole, exact)


def test_yarn_with_a_ramp_of_no_width_splits_cleanly() -> None:
    rope = read(rope_scaling=YARN | {"original_max_position_embeddings": 4, "beta_fast": 1, "beta_slow": 1})
    plain = inverse_frequencies(Rope(16, 1e4))
    np.testing.assert_allclose(inverse_frequencies(rope), np.r_[plain[:1], plain[1:] / 4], rtol=1e-12)


def test_yarn_scales_its_output_as_asked() -> None:
    assert read(rope_scaling=YARN | {"attention_factor": 1.25}).attention_factor == 1.25
    assert read(rope_scaling=YARN | {"factor": 1.0}).attention_factor == 1.0
    both = read(rope_scaling=YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}).attention_factor
    assert both == (0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)
    alone = read(rope_scaling=YARN | {"mscale": 1.0, "mscale_all_dim": 0}).attention_factor
    assert alone == 0.1 * math.log(4) + 1


@pytest.mark.parametrize(("name", "other"), [("mscale", "mscale_all_dim"), ("mscale_all_dim", "mscale")])
def test_a_lone_magnitude_that_libraries_read_differently_is_refused(name: str, other: str) -> None:
    message = refusal(rope_scaling=YARN | {name: 0.7})
    assert f"gives {name} as 0.7 without {other}; give both or neither" in message


def test_proportional_turns_the_first_pairs_and_leaves_the_others_still() -> None:
    rope = Rope(16, 1e4, "proportional", rotated=4, denominator=16)
    np.testing.assert_allclose(inverse_frequencies(rope), [1.0, 10_000 ** (-2 / 16), *[0.0] * 6], rtol=1e-12)


def test_the_interleaved_pairing_is_read() -> None:
    assert read(rope_traditional=True).interleaved


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ({"rope_theta": 0.0}, "rope_theta as 0.0"),
        ({"rope_theta": 1.0}, "rope_theta as 1.0"),
        ({"rope_theta": float("inf")}, "rope_theta as inf"),
        ({"rope_scaling": "linear"}, "rope_scaling as 'linear'; it must be an object"),
        ({"rope_scaling": {"type": "longrope"}}, "one of default, plain, linear, llama3, yarn"),
        ({"rope_scaling": {"rope_type": ["yarn"]}}, "rope_type as a list of 1"),
        ({"rope_scaling": {"type": "linear"}}, "lacks factor"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor as 0"),
        ({"rope_scaling": {"type": "linear", "factor": float("nan")}}, "factor as nan"),
        ({"rope_scaling": {"type": "linear", "factor": 2, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"rope_scaling": {"type": "llama3", "factor": 8}}, "lacks original_max_position_embeddings"),
        ({"rope_scaling": LLAMA3 | {"low_freq_factor": 4.0}}, "high_freq_factor, which must be larger"),
        ({"rope_scaling": LLAMA3 | {"high_freq_factor": 0.5}}, "high_freq_factor as 0.5; it must be larger"),
        ({"rope_scaling": YARN | {"beta_fast": 0.5}}, "beta_fast as 0.5; it must be at least beta_slow (1)"),
        ({"rope_scaling": YARN | {"attention_factor": 0}}, "attention_factor as 0"),
        ({"rope_scaling": YARN | {"truncate": 1}}, "truncate as 1"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differs by layer type"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(config: dict[str, Any], part: str) -> None:
    assert part in refusal(**config)
