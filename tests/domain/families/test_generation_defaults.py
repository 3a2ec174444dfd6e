"""Sampling defaults of a generation_config.json."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.generation_defaults import GenerationDefaults, read_generation


def test_without_a_file_replies_are_greedy() -> None:
    assert read_generation({}, 100) == GenerationDefaults(0.0, 0, 1.0, 0.0, frozenset())


def test_recommended_settings_are_read() -> None:
    config = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1, "eos_token_id": [2, 11]}
    assert read_generation(config, 100) == GenerationDefaults(0.6, 20, 0.95, 0.1, frozenset({2, 11}))


@pytest.mark.parametrize(
    ("config", "temperature"),
    [
        ({"do_sample": True}, 1.0),
        ({"do_sample": False, "temperature": 0.7}, 0.0),
        ({"temperature": 0.7}, 0.7),
        ({"top_p": 0.9}, 0.0),
    ],
)
def test_sampling_is_on_when_asked_or_when_a_temperature_is_given(config: dict[str, Any], temperature: float) -> None:
    assert read_generation(config, 100).temperature == temperature


@pytest.mark.parametrize(
    "config",
    [{"temperature": -1}, {"top_k": 1.5}, {"top_p": 2}, {"min_p": "x"}, {"do_sample": 1}, {"eos_token_id": [100]}],
)
def test_settings_out_of_range_are_refused_under_their_files_name(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^generation_config\.json gives "):
        read_generation(config, 100)
