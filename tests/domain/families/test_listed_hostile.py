"""Whatever stands in a listed family's config, the plan is whole or one short sentence refuses it, on any backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.families import dflash2, listing
from tensorfold.domain.families.catalogue import QWEN_27B, drafted_family, find, plan_for, published_plan
from tensorfold.domain.families.facts import facts
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.state import lane_bytes, state_spec
from tests.synthetic.tiny_configs import tiny

NAMES = ("qwen3_5", "qwen4_exp", "nemotron_h", "glm5_next", "gemma4")
CONFIGS: dict[str, dict[str, Any]] = {name: (lambda c: c.get("text_config", c))(tiny(name)) for name in NAMES}
ELSEWHERE = (
    *("quantization", "quantization_config", "text_config", "rope_scaling", "layer_types", "mlp_layer_types"),
    *(
        "per_layer_config",
        "time_step_limit",
        "indexer_types",
        "layers_block_type",
        "dtype",
        "torch_dtype",
        "model_type",
    ),
)
WORDS = st.sampled_from(
    [
        *(
            "linear_attention",
            "full_attention",
            "sliding_attention",
            "silu",
            "relu2",
            "M*E",
            "default",
            "yarn",
            "affine",
        ),
        *("exl3", "qwen3_5", "gemma4_text", "proportional", "vision", "bfloat16", "\x00\n"),
    ]
) | st.text(max_size=50)
NUMBERS = st.integers(-2, 300) | st.sampled_from([1 << 31, 1 << 63, 1 << 5000, -(1 << 70)]) | st.floats()
KEYS = st.sampled_from(
    [
        *("rope_type", "rope_theta", "partial_rotary_factor", "factor", "sliding_attention", "full_attention"),
        *("bits", "group_size", "mode", "quant_method", "head_bits", "num_heads", "head_dim", "gate_lower_bound"),
        *("short_conv_kernel_size", "full_attn_layers", "5", "num_key_value_heads", "original_max_position_embeddings"),
    ]
) | st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)


def sound(message: str) -> None:
    assert message.isprintable()
    assert message.endswith(".")
    assert len(message) <= 400


def check(config: Mapping[str, Any]) -> None:
    for told in listing.runs(config):
        if told.refusal:
            sound(told.refusal)
    for backend in ("mlx", "cuda"):
        try:
            plan_for(config, backend)
        except ConfigError as refusal:
            sound(refusal.message)
    listing.side_files(config)
    family = find(config.get("model_type"))
    if family is None:
        return
    try:
        plan = family.reader.plan(config)
    except ConfigError as refusal:
        sound(refusal.message)
        return
    assert 1 <= len(plan.layers) <= 1000
    assert lane_bytes(state_spec(plan), 100) >= 0
    assert facts(plan).parameters > 0
    assert set(plan.tensors.slots) >= {"embedding"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_any_config_becomes_a_sound_plan_or_one_sentence(name: str) -> None:
    fields = st.sampled_from([*CONFIGS[name], *ELSEWHERE])

    @given(st.dictionaries(fields, VALUES, max_size=3), st.booleans())
    @settings(derandomize=True, deadline=None, max_examples=60)
    def tried(changed: dict[str, Any], nested: bool) -> None:
        config = CONFIGS[name] | changed
        check({"model_type": name, "text_config": config} if nested else config)

    tried()


@given(st.dictionaries(st.sampled_from([*dflash2.CONFIG, "layer_types"]), VALUES, max_size=3))
@settings(derandomize=True, deadline=None, max_examples=100)
@pytest.mark.slow
def test_any_drafters_config_becomes_a_sound_plan_or_one_sentence(changed: dict[str, Any]) -> None:
    config = dflash2.CONFIG | changed
    drafted_family(config)
    for target in (None, published_plan(QWEN_27B)):
        refusal = dflash2.refuse(config, target)
        if refusal is not None:
            sound(refusal)


@pytest.mark.parametrize("name", NAMES)
def test_every_field_a_plan_needs_is_asked_for_by_name(name: str) -> None:
    family = find(CONFIGS[name]["model_type"])
    assert family is not None
    for field in ("hidden_size", "vocab_size", "max_position_embeddings", "num_attention_heads", "head_dim"):
        if field not in CONFIGS[name]:
            continue
        with pytest.raises(ConfigError, match=rf"^config\.json lacks {field}, which must be "):
            family.reader.plan({k: v for k, v in CONFIGS[name].items() if k != field})
