"""A config is hostile: whatever stands in it, the plan is whole or one short sentence refuses it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.families import llama
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.ops import Attention
from tensorfold.domain.families.rope import inverse_frequencies
from tensorfold.domain.families.state import lane_bytes, state_spec
from tensorfold.domain.families.storage import parse_quantization
from tests.domain.families.configs import llama_config

FIELDS = [
    *llama_config(),
    *("head_dim", "rope_scaling", "rope_parameters", "sliding_window", "use_sliding_window", "layer_types", "dtype"),
    *("attention_bias", "mlp_bias", "max_window_layers", "rope_traditional", "quantization", "quantization_config"),
]
NUMBERS = st.integers(-2, 300) | st.sampled_from([1 << 31, 1 << 63, 1 << 5000, -(1 << 70)]) | st.floats()
WORDS = st.sampled_from(
    ["llama", "mistral", "qwen2", "silu", "yarn", "llama3", "linear", "sliding_attention", "full_attention", "\x00\n"]
) | st.text(max_size=50)
LEAVES = st.none() | st.booleans() | NUMBERS | WORDS
KEYS = st.sampled_from(
    [
        *("rope_type", "type", "factor", "rope_theta", "original_max_position_embeddings", "beta_fast", "mscale"),
        *("low_freq_factor", "high_freq_factor", "truncate", "attention_factor"),
        *("bits", "group_size", "mode", "quant_method"),
    ]
) | st.text(max_size=5)
VALUES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=4) | st.dictionaries(KEYS, v, max_size=6), max_leaves=20)


@given(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4))
@settings(derandomize=True, deadline=None, max_examples=150)
@pytest.mark.slow
def test_any_config_becomes_a_sound_plan_or_one_sentence(changed: dict[str, Any]) -> None:
    try:
        parse_quantization(llama_config(**changed))
        plan = llama.plan(llama_config(**changed))
    except ConfigError as refusal:
        assert refusal.message.isprintable()
        assert refusal.message.endswith(".")
        assert len(refusal.message) <= 300
        return
    assert 1 <= len(plan.layers) <= 1000
    assert lane_bytes(state_spec(plan), 100) > 0
    for layer in plan.layers:
        op = layer[0].op
        assert isinstance(op, Attention)
        assert op.heads % op.kv_heads == 0
        assert op.rope is not None
        assert (abs(inverse_frequencies(op.rope)) < 1e6).all()


YARN = st.fixed_dictionaries(
    {
        "rope_type": st.sampled_from(["yarn", "llama3", "linear"]),
        "factor": st.floats(0.5, 64),
        "original_max_position_embeddings": st.integers(1, 1 << 31),
        "beta_fast": st.floats(1, 64),
        "low_freq_factor": st.floats(0.01, 3.9),
        "truncate": st.booleans(),
    }
)


@given(YARN, st.integers(1, 64), st.floats(1.001, 1e15))
@settings(derandomize=True, deadline=None, max_examples=150)
@pytest.mark.slow
def test_every_accepted_rope_has_finite_frequencies_between_the_scaled_and_the_plain(
    block: dict[str, Any], pairs: int, theta: float
) -> None:
    plan = llama.plan(llama_config(head_dim=2 * pairs, rope_theta=theta, rope_scaling=block))
    op = plan.layers[0][0].op
    assert isinstance(op, Attention)
    assert op.rope is not None
    found = inverse_frequencies(op.rope)
    plain = theta ** -(2 * (found * 0 + range(pairs)) / (2 * pairs))
    low, high = sorted((1.0, 1 / block["factor"]))
    assert (found >= plain * low * (1 - 1e-9)).all()
    assert (found <= plain * high * (1 + 1e-9)).all()
