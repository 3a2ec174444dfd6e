"""Reads a config's rotary settings and turns them into frequencies: both spellings, all forms of the plan type.

Knows no tensor library: frequencies are float64, a backend rounds them once. Refuses by name what it does not read.
Source: the forms' papers (linear interpolation, YaRN) and Llama 3.1's published rule; checked against
transformers 5.23.0 and mlx-lm 0.32.2.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.fields import ConfigError, Fields, shown
from tensorfold.domain.families.ops import Rope

_NAMES = ("default", "plain", "linear", "llama3", "yarn")
_MOST_POSITIONS = 1 << 31


def read_rope(config: Fields, dims: int, *, partial: float = 1.0, theta: float = 10_000.0) -> Rope:
    """The rotary embedding of `dims` dimensions a config describes under `rope_parameters` or `rope_scaling`.

    `partial` is the share of each head that `dims` is; `theta` is taken where none is stated, 0 to demand one. Raises
    ConfigError for unknown forms, values out of range and two blocks that disagree.
    """
    stated = config.number("rope_theta", 1.001, 1e15, theta)
    plain = Rope(dims, stated, interleaved=config.flag("rope_traditional", False))
    newer, older = config.group("rope_parameters"), config.group("rope_scaling")
    found = [read_block(block, plain, partial) for block in (newer, older) if block is not None]
    if len(found) == 2 and found[0] != found[1]:
        raise ConfigError(
            "config.json's rope_parameters and rope_scaling disagree; keep the one the weights were made for."
        )
    rope = found[0] if found else plain
    if not rope.theta:
        raise config.refusal("rope_theta", "a number from 1.001 to 1e+15, here or in rope_parameters")
    return rope


def read_partial(config: Fields, head_dim: int, default: float | None = None) -> tuple[int, float]:
    """The dims of a head that turn and their share, stated in `rope_parameters` or beside it."""
    block = next((b for b in map(config.group, ("rope_parameters", "rope_scaling")) if b is not None), config)
    fields = block if block.has("partial_rotary_factor") else config
    share = fields.number("partial_rotary_factor", 0.0, 1.0, default)
    dims = int(head_dim * share)
    if dims < 2 or dims % 2:
        raise ConfigError(
            f"{fields.place} lets {dims} of {head_dim:,} dimensions turn (partial_rotary_factor {share:g}); they must "
            "be even and at least 2."
        )
    return dims, share


def read_block(block: Fields, plain: Rope, partial: float = 1.0) -> Rope:
    """One block of rotary settings over the values of `plain`. Raises ConfigError."""
    name = _form_name(block)
    if block.number("partial_rotary_factor", 0.0, 1.0, partial) != partial:
        raise block.refusal("partial_rotary_factor", f"{partial:g} here")
    rope = replace(plain, theta=block.number("rope_theta", 1.001, 1e15, plain.theta))
    if name in ("default", "plain"):
        return rope
    rope = replace(rope, factor=block.number("factor", 1e-3, 1e6))
    if name == "linear":
        return replace(rope, form="linear")
    rope = replace(rope, original=block.integer("original_max_position_embeddings", 1, _MOST_POSITIONS))
    return _llama3(block, rope) if name == "llama3" else _yarn(block, rope)


def _form_name(block: Fields) -> str:
    key = "rope_type" if block.has("rope_type") else "type"
    if not block.has(key) and any(isinstance(v, dict) for v in block.values.values()):
        raise ConfigError(f"{block.place} differs by layer type, which is not read here; give one set for all layers.")
    return block.word(key, _NAMES, "default")


def _llama3(block: Fields, rope: Rope) -> Rope:
    low = block.number("low_freq_factor", 1e-3, 1e6, 1.0)
    high = block.number("high_freq_factor", 1e-3, 1e6, 4.0)
    if high <= low:
        raise block.refusal("high_freq_factor", f"larger than low_freq_factor ({low:g})")
    return replace(rope, form="llama3", low_factor=low, high_factor=high)


def _yarn(block: Fields, rope: Rope) -> Rope:
    fast = block.number("beta_fast", 1e-3, 1e6, 32.0)
    slow = block.number("beta_slow", 1e-3, 1e6, 1.0)
    if fast < slow:
        raise block.refusal("beta_fast", f"at least beta_slow ({slow:g})")
    scale = block.number("attention_factor", 1e-3, 1e3, _yarn_scale(block, rope.factor))
    return replace(
        rope, form="yarn", beta_fast=fast, beta_slow=slow, attention_factor=scale, truncate=block.flag("truncate", True)
    )


def _yarn_scale(block: Fields, factor: float) -> float:
    over = block.number("mscale", 0.0, 1e3, 0.0)
    under = block.number("mscale_all_dim", 0.0, 1e3, 0.0)
    if over and under:
        return _magnitude(factor, over) / _magnitude(factor, under)
    if under or over not in (0.0, 1.0):
        # The two reference libraries read a lone value differently, so neither reading can be called right.
        name, other = ("mscale_all_dim", "mscale") if under else ("mscale", "mscale_all_dim")
        value = shown(block.values[name])
        raise ConfigError(f"{block.place} gives {name} as {value} without {other}; give both or neither.")
    return _magnitude(factor, 1.0)


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * scale * math.log(factor) + 1.0


def inverse_frequencies(rope: Rope) -> NDArray[np.float64]:
    """Angle per position of each rotated pair, float64 [dims / 2]; 0 where a pair stands still."""
    exponents = np.arange(0, rope.dims, 2, dtype=np.float64) / (rope.denominator or rope.dims)
    inverse: NDArray[np.float64] = np.power(rope.theta, -exponents)
    if rope.form == "linear":
        return inverse / rope.factor
    if rope.form == "llama3":
        return _llama3_frequencies(rope, inverse)
    if rope.form == "yarn":
        return _yarn_frequencies(rope, inverse)
    if rope.form == "proportional":
        inverse[rope.rotated // 2 :] = 0.0
        return inverse / rope.factor
    return inverse


def _llama3_frequencies(rope: Rope, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
    turns = rope.original * inverse / (2 * math.pi)
    smooth = np.clip((turns - rope.low_factor) / (rope.high_factor - rope.low_factor), 0.0, 1.0)
    return inverse * ((1 - smooth) / rope.factor + smooth)


def _yarn_frequencies(rope: Rope, inverse: NDArray[np.float64]) -> NDArray[np.float64]:
    def pair_of(rotations: float) -> float:
        return rope.dims * math.log(rope.original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair_of(rope.beta_fast), pair_of(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dims - 1)
    if low == high:
        high += 0.001  # a ramp of no width would divide by zero
    ramp: NDArray[np.float64] = np.clip((np.arange(rope.dims // 2) - low) / (high - low), 0.0, 1.0)
    return inverse * (ramp / rope.factor + 1 - ramp)
