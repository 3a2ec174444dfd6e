"""Sampling defaults and end tokens from a parsed generation_config.json. Hostile input, read field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tensorfold.domain.families.fields import Fields

_MOST_TEMPERATURE = 100.0
_MOST_TOP_K = 1 << 31


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """What a checkpoint recommends; `temperature` 0 is greedy, `top_k` 0 and `top_p` 1 are off."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    stop_ids: frozenset[int]


def read_generation(config: Mapping[str, Any], vocabulary: int) -> GenerationDefaults:
    """Defaults of a generation_config.json (an empty mapping when there is none). Raises ConfigError.

    `do_sample` false is greedy; true without a temperature means 1.0; without either field the checkpoint is greedy.
    """
    fields = Fields(config, "generation_config.json")
    sampled = fields.flag("do_sample", fields.has("temperature"))
    temperature = fields.number("temperature", 0.0, _MOST_TEMPERATURE, 1.0)
    return GenerationDefaults(
        temperature=temperature if sampled else 0.0,
        top_k=fields.integer("top_k", 0, _MOST_TOP_K, 0),
        top_p=fields.number("top_p", 0.0, 1.0, 1.0),
        min_p=fields.number("min_p", 0.0, 1.0, 0.0),
        stop_ids=fields.ids("eos_token_id", vocabulary),
    )
