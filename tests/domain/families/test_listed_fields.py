"""Fields of the listed families that would change a model's arithmetic are read, or refused with value and limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tensorfold.domain.families import gemma4, glm5_next, nemotron_h, qwen3_5, qwen4_exp
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.ops import (
    Attention,
    FeedForward,
    GatedDelta,
    HashedNgram,
    IndexedAttention,
    KimiDelta,
    LatentAttention,
    Mamba2,
    MixtureOfExperts,
    Rope,
)
from tensorfold.domain.families.plans import DecoderPlan
from tests.domain.families.sheet_facts import multimodal

REMOVED = object()


def changed(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (dict(config) | dict(changes)).items() if value is not REMOVED}


def rope_with(**fields: Any) -> dict[str, Any]:
    return {"rope_parameters": changed(qwen3_5.CONFIG["rope_parameters"], fields)}


REFUSED: tuple[tuple[Any, dict[str, Any], str], ...] = (
    (qwen3_5, {"attention_bias": True}, "attention_bias as true; it must be false in this family"),
    (qwen3_5, {"attn_output_gate": False}, "attn_output_gate as false; it must be true in this family"),
    (qwen3_5, {"output_gate_type": "sigmoid"}, "output_gate_type as 'sigmoid'; it must be one of silu, swish"),
    (qwen3_5, {"mamba_ssm_dtype": "bfloat16"}, "mamba_ssm_dtype as 'bfloat16'; it must be 'float32'"),
    (qwen3_5, {"hidden_act": "gelu"}, "hidden_act as 'gelu'"),
    (qwen3_5, {"num_key_value_heads": 5}, "num_key_value_heads as 5; it must be a divisor of num_attention_heads (24)"),
    (qwen3_5, {"linear_num_value_heads": 50}, "linear_num_value_heads as 50; it must be a multiple of "),
    (qwen3_5, {"head_dim": 255}, "head_dim as 255; it must be even"),
    (qwen3_5, rope_with(partial_rotary_factor=0.001), "lets 0 of 256 dimensions turn"),
    (qwen3_5, rope_with(rope_theta=REMOVED), "config.json lacks rope_theta"),
    (qwen3_5, {"mtp_num_hidden_layers": 2}, "mtp_num_hidden_layers as 2; it must be an integer from 0 to 1"),
    (qwen3_5, {"mtp_use_dedicated_embeddings": True}, "mtp_use_dedicated_embeddings as true"),
    (qwen3_5, {"layer_types": ["linear_attention"]}, "layer_types as a list of 1; it must be a list of 64"),
    (qwen3_5, {"full_attention_interval": 0}, "full_attention_interval as 0"),
    (qwen4_exp, {"output_gate_type": REMOVED}, "lacks output_gate_type, which must be one of silu, swish, sigmoid"),
    (qwen4_exp, rope_with(partial_rotary_factor=REMOVED), "lacks partial_rotary_factor"),
    (qwen4_exp, {"hc_count": 1}, "hc_count as 1; it must be an integer from 2 to 16"),
    (qwen4_exp, {"indexer_kv_heads": 2}, "indexer_kv_heads as 2; it must be 1 in this family"),
    (qwen4_exp, {"indexer_n_heads": None}, "lacks indexer_n_heads"),
    (
        qwen4_exp,
        {"indexer_budget": 2049},
        "indexer_budget as 2,049; it must be a multiple of indexer_compress_ratio (4)",
    ),
    (qwen4_exp, {"indexer_head_dim": 32}, "indexer_head_dim as 32; it must be at least the 64 dimensions that turn"),
    (qwen4_exp, {"num_experts_per_tok": 513}, "num_experts_per_tok as 513; it must be an integer from 1 to 512"),
    (qwen4_exp, {"ple_layer_ids": [4]}, "puts a table into layer 4 (ple_layer_ids), which must not attend"),
    (qwen4_exp, {"ple_layer_ids": [49]}, "ple_layer_ids[0] as 49"),
    (qwen4_exp, {"ple_layer_ids": 2}, "ple_layer_ids as 2; it must be a list"),
    (qwen4_exp, {"ple_embed_dim": 2561}, "ple_embed_dim as 2,561; it must be a multiple of (ngram_size - 1) x heads_"),
    (
        qwen4_exp,
        {"split_ngram_parts": 127},
        "split_ngram_parts as 127; it must be a divisor of the table's 320,001,536",
    ),
    (qwen4_exp, {"eos_token_id": None}, "lacks eos_token_id, which must be a token id, since n-grams end at it"),
    (nemotron_h, {"hybrid_override_pattern": "MEX"}, "hybrid_override_pattern[2] as 'X'; known are M, *, E, -"),
    (nemotron_h, {"hybrid_override_pattern": ""}, "hybrid_override_pattern as ''; it must be of 1 to 1,000 blocks"),
    (nemotron_h, {"hybrid_override_pattern": REMOVED}, "lacks hybrid_override_pattern"),
    (nemotron_h, {"n_group": 2}, "n_group as 2; it must be 1 in this family"),
    (nemotron_h, {"mlp_hidden_act": "silu"}, "mlp_hidden_act as 'silu'; it must be 'relu2' in this family"),
    (nemotron_h, {"mamba_proj_bias": True}, "mamba_proj_bias as true"),
    (nemotron_h, {"residual_in_fp32": True}, "residual_in_fp32 as true"),
    (nemotron_h, {"sliding_window": 4096}, "sliding_window as 4096; it must be null in this family"),
    (nemotron_h, {"n_groups": 7}, "mamba_num_heads as 64; it must be a multiple of n_groups (7)"),
    (nemotron_h, {"time_step_limit": [1.0, 0.5]}, "time_step_limit as a list of 2; it must be a list of two numbers"),
    (nemotron_h, {"time_step_limit": [0.0, float("nan")]}, "time_step_limit"),
    (
        nemotron_h,
        {"mtp_hybrid_override_pattern": "E*"},
        "mtp_hybrid_override_pattern as 'E*'; it must be attention, then",
    ),
    (nemotron_h, {"mamba_ssm_cache_dtype": "bfloat16"}, "mamba_ssm_cache_dtype as 'bfloat16'; it must be 'float32'"),
    (glm5_next, {"qk_rope_head_dim": 64}, "qk_rope_head_dim as 64; it must be 0 in this family"),
    (glm5_next, {"num_key_value_heads": 32}, "num_key_value_heads as 32; it must be 64 in this family"),
    (glm5_next, {"index_kpool": REMOVED}, "lacks index_kpool"),
    (glm5_next, {"index_topk": 2047}, "index_topk as 2,047; it must be a multiple of index_kpool (4)"),
    (glm5_next, {"index_kpool_always_select_tail": False}, "index_kpool_always_select_tail as false"),
    (glm5_next, {"indexer_types": ["full"] * 44 + ["shared"]}, "indexer_types[44] as 'shared'; it must be one of full"),
    (glm5_next, {"scoring_func": "softmax"}, "scoring_func as 'softmax'; it must be 'sigmoid' in this family"),
    (glm5_next, {"n_shared_experts": 2}, "n_shared_experts as 2; it must be 1 in this family"),
    (glm5_next, {"linear_attn_config": {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4}}, "gate_lower_"),
    (glm5_next, {"swiglu_limit": REMOVED}, "lacks swiglu_limit"),
    (glm5_next, {"hc_mult": 17}, "hc_mult as 17"),
    (gemma4, {"hidden_size_per_layer_input": 256}, "hidden_size_per_layer_input as 256; it must be 0 in this family"),
    (
        gemma4,
        {"hidden_size_per_layer_input": REMOVED},
        "lacks hidden_size_per_layer_input, which must be 0, as the 26B",
    ),
    (gemma4, {"enable_moe_block": False}, "enable_moe_block as false; it must be true in this family"),
    (gemma4, {"num_kv_shared_layers": 20}, "num_kv_shared_layers as 20; it must be 0 in this family"),
    (gemma4, {"use_double_wide_mlp": True}, "use_double_wide_mlp as true"),
    (gemma4, {"use_bidirectional_attention": "all"}, "use_bidirectional_attention as 'all'; it must be one of vision"),
    (gemma4, {"tie_word_embeddings": False}, "tie_word_embeddings as false; it must be true in this family"),
    (gemma4, {"layer_types": REMOVED}, "lacks layer_types"),
    (gemma4, {"layer_types": ["sliding_attention"] * 30}, "it must be a list that ends with full_attention"),
    (gemma4, {"rope_parameters": REMOVED}, "lacks rope_parameters"),
    (gemma4, {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, "lacks sliding_attention"),
    (gemma4, {"global_head_dim": REMOVED}, "lacks global_head_dim, which must be the full layers' head_dim"),
    (
        gemma4,
        {"per_layer_config": {"5": {"head_dim": 512}}, "global_head_dim": REMOVED},
        "the same head_dim and num_key",
    ),
    (gemma4, {"hidden_activation": "silu"}, "hidden_activation as 'silu'; it must be 'gelu_pytorch_tanh'"),
)


@pytest.mark.parametrize(("module", "changes", "part"), REFUSED)
def test_what_would_change_the_arithmetic_is_refused_with_its_value(
    module: Any, changes: dict[str, Any], part: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        module.plan(changed(module.CONFIG, changes))
    assert part in refusal.value.message
    assert module.refuse(changed(module.CONFIG, changes), "mlx") == refusal.value.message


@pytest.mark.parametrize("module", [qwen3_5, qwen4_exp, glm5_next, gemma4])
def test_a_nested_text_part_is_read_as_a_flat_config(module: Any) -> None:
    nested = module.plan(multimodal(module.CONFIG, vision_config={"hidden_size": "?"}, eos_token_id=[3]))
    flat = module.plan(module.CONFIG)
    assert nested.layers == flat.layers and nested.stop_ids == flat.stop_ids and nested.model_type != flat.model_type
    outside = {name: value for name, value in module.CONFIG.items() if name != "tie_word_embeddings"}
    with pytest.raises(ConfigError, match=r"text_config gives hidden_size as 0"):
        module.plan(multimodal(outside | {"hidden_size": 0}))
    with pytest.raises(ConfigError, match=r"text_config gives model_type as 'llama'"):
        module.plan(multimodal(outside) | {"text_config": outside | {"model_type": "llama"}})


def ops(plan: DecoderPlan, layer: int = 0, sublayer: int = 0) -> Any:
    return plan.layers[layer][sublayer].op


def test_listed_layers_count_before_the_interval() -> None:
    kinds = ["full_attention", *["linear_attention"] * 63]
    plan = qwen3_5.plan(qwen3_5.CONFIG | {"layer_types": kinds})
    assert [isinstance(ops(plan, layer), Attention) for layer in range(3)] == [True, False, False]
    plan = qwen3_5.plan(qwen3_5.CONFIG | {"full_attention_interval": 2})
    assert [isinstance(ops(plan, layer), GatedDelta) for layer in range(4)] == [True, False, True, False]
    renamed = ["indexed_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(48)]
    assert isinstance(ops(qwen4_exp.plan(qwen4_exp.CONFIG | {"layer_types": renamed}), 3), IndexedAttention)


def test_the_long_form_of_the_27b_turns_as_yarn() -> None:
    block = rope_with(rope_type="yarn", factor=4.0, original_max_position_embeddings=262_144)
    rope = ops(qwen3_5.plan(qwen3_5.CONFIG | block), 3).rope
    assert (rope.dims, rope.theta, rope.form, rope.factor, rope.original) == (64, 1e7, "yarn", 4.0, 262_144)
    assert ops(qwen3_5.plan(qwen3_5.CONFIG), 3).rope == Rope(64, 1e7)


def test_rotary_settings_may_stand_outside_their_block() -> None:
    flat = {"rope_parameters": None, "rope_theta": 1e6, "partial_rotary_factor": 0.5}
    assert ops(qwen3_5.plan(qwen3_5.CONFIG | flat), 3).rope == Rope(128, 1e6)


def test_output_gates_differ_between_the_two_qwens() -> None:
    assert ops(qwen3_5.plan(qwen3_5.CONFIG)).gate == "silu"
    assert ops(qwen4_exp.plan(qwen4_exp.CONFIG)).gate == "sigmoid"
    assert ops(qwen4_exp.plan(qwen4_exp.CONFIG | {"output_gate_type": "swish"})).gate == "silu"


@pytest.mark.parametrize(
    ("module", "field"),
    [
        (qwen3_5, "mtp_num_hidden_layers"),
        (qwen4_exp, "mtp_num_hidden_layers"),
        (nemotron_h, "num_nextn_predict_layers"),
        (glm5_next, "num_nextn_predict_layers"),
    ],
)
@pytest.mark.slow
def test_a_config_without_a_draft_head_has_none_and_leaves_its_tensors_alone(module: Any, field: str) -> None:
    plan = module.plan(changed(module.CONFIG, {field: REMOVED}))
    assert plan.mtp is None and not any(path.startswith("mtp.") for path in plan.tensors.slots)
    assert plan.tensors.ignores("mtp.norm.weight") and plan.tensors.side_files == ()
    assert not module.plan(module.CONFIG).tensors.ignores("mtp.norm.weight")


def test_only_ids_of_the_published_vocabulary_limit_drafts() -> None:
    small = qwen3_5.plan(qwen3_5.CONFIG | {"vocab_size": 512, "eos_token_id": 2})
    assert small.mtp is not None and small.mtp.draft_ids == ()


def test_a_tied_head_is_taken_where_the_family_allows_it() -> None:
    tied = qwen3_5.plan(qwen3_5.CONFIG | {"tie_word_embeddings": True})
    assert tied.head.tied and "head" not in tied.tensors.slots
    assert tied.tensors.ignores("language_model.lm_head.weight")


def test_nemotron_blocks_are_read_in_every_spelling() -> None:
    letters = nemotron_h.plan(nemotron_h.CONFIG | {"hybrid_override_pattern": "ME*-", "intermediate_size": 64})
    words = {
        "layers_block_type": ["mamba", "moe", "attention", "mlp"],
        "layer_types": ["linear_attention", "moe", "full_attention", "mlp"],
    }
    for name, kinds in words.items():
        config = changed(nemotron_h.CONFIG, {"hybrid_override_pattern": REMOVED, name: kinds, "intermediate_size": 64})
        assert nemotron_h.plan(config).layers == letters.layers
    listed = nemotron_h.plan(
        nemotron_h.CONFIG
        | {"hybrid_override_pattern": ["M", "E", "*", "-"], "layer_types": ["moe"], "intermediate_size": 64}
    )
    assert listed.layers == letters.layers
    assert [type(ops(letters, layer)) for layer in range(4)] == [Mamba2, MixtureOfExperts, Attention, FeedForward]


def test_nemotron_time_steps_are_clamped_only_where_the_config_says_so() -> None:
    def limit(value: Any) -> Any:
        return ops(nemotron_h.plan(nemotron_h.CONFIG | {"time_step_limit": value})).step_limit

    assert limit(None) is None and limit([0.0, float("inf")]) is None and limit([0, {"__float__": "Infinity"}]) is None
    assert limit([0.001, float("inf")]) == (0.001, 1e30)
    assert limit([0.001, 0.1]) == (0.001, 0.1)


def test_nemotron_experts_may_be_narrowed_or_alone() -> None:
    narrowed = ops(nemotron_h.plan(nemotron_h.CONFIG | {"moe_latent_size": 1024}), 1)
    assert narrowed.latent == 1024
    assert ops(nemotron_h.plan(nemotron_h.CONFIG | {"n_shared_experts": 0}), 1).shared is None


@pytest.mark.slow
def test_glm_settings_are_read_in_both_spellings() -> None:
    flat = changed(
        glm5_next.CONFIG,
        {
            "linear_attn_config": REMOVED,
            "linear_num_heads": 64,
            "linear_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "linear_lower_bound": -5.0,
        },
    )
    kinds = ["linear_attention" if i % 4 != 3 else "deepseek_sparse_attention" for i in range(45)]
    routed = ["dense"] * 3 + ["sparse"] * 43
    listed = {"layer_types": kinds, "mlp_layer_types": routed, "indexer_types": ["full"] * 46}
    published = glm5_next.plan(glm5_next.CONFIG).layers
    assert glm5_next.plan(flat).layers == published
    assert glm5_next.plan(glm5_next.CONFIG | listed).layers == published
    full = glm5_next.CONFIG["linear_attn_config"] | {"full_attn_layers": [0, 4]}
    some = glm5_next.plan(glm5_next.CONFIG | {"linear_attn_config": full})
    assert [i for i in range(45) if isinstance(ops(some, i), LatentAttention)] == [0, 4]


def test_glm_decays_have_a_bound_unless_the_config_frees_them() -> None:
    free = {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "safe_gate": False}
    op = ops(glm5_next.plan(glm5_next.CONFIG | {"linear_attn_config": free}))
    assert isinstance(op, KimiDelta) and op.lower_bound is None
    assert ops(glm5_next.plan(glm5_next.CONFIG)).lower_bound == -5.0


def test_gemma_full_layers_may_be_stated_layer_by_layer() -> None:
    each = {str(i): {"head_dim": 512, "num_key_value_heads": 2} for i in (5, 11, 17, 23, 29)}
    config = changed(
        gemma4.CONFIG, {"global_head_dim": REMOVED, "num_global_key_value_heads": REMOVED, "per_layer_config": each}
    )
    assert gemma4.plan(config).layers == gemma4.plan(gemma4.CONFIG).layers


def test_gemma_turns_a_quarter_of_its_full_heads_over_their_whole_width() -> None:
    plan = gemma4.plan(gemma4.CONFIG)
    assert ops(plan, 5).rope == Rope(512, 1e6, "proportional", rotated=128, denominator=512)
    assert ops(plan, 0).rope == Rope(256, 1e4)
    assert (ops(plan, 0).window, ops(plan, 5).window, ops(plan, 5).values_from_keys) == (1024, 0, True)
    assert plan.embedding.multiplier == 2816**0.5 and plan.head.softcap == 30.0


TABLES: tuple[Callable[[], HashedNgram], ...] = (
    lambda: ops(qwen4_exp.plan(qwen4_exp.CONFIG | {"ple_layer_ids": [3, 2]}), 1),
    lambda: ops(qwen4_exp.plan(qwen4_exp.CONFIG | {"ple_layer_ids": [3, 2]}), 2),
)


def test_a_second_table_goes_on_where_the_first_ones_sizes_end() -> None:
    first, second = (table() for table in TABLES)
    assert first.table_sizes[-1] < second.table_sizes[0]
    assert first.multipliers != second.multipliers
    assert first.boundary_token == 248_044
    several = ops(qwen4_exp.plan(qwen4_exp.CONFIG | {"eos_token_id": [248_046, 248_044]}), 1)
    assert several.boundary_token == 248_046
    without = qwen4_exp.plan(qwen4_exp.CONFIG | {"ple_layer_ids": None})
    assert not any(".ngram." in path for path in without.tensors.slots)


def test_the_index_ratio_is_read_in_both_spellings() -> None:
    other = changed(qwen4_exp.CONFIG, {"indexer_compress_ratio": REMOVED, "compress_ratio": 8})
    assert ops(qwen4_exp.plan(other), 3).indexer.ratio == 8
