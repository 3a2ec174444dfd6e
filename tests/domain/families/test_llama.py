"""The Llama family's plan: every field that shapes it, the slots it names, and its refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.families import llama
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.ops import Attention, Norm, Rope, SwiGLU
from tensorfold.domain.families.plans import DecoderPlan, Embedding, Head, Plain, Readout
from tests.domain.families.configs import REMOVED, llama_config


def attention(plan: DecoderPlan, layer: int = 0) -> Attention:
    op = plan.layers[layer][0].op
    assert isinstance(op, Attention)
    return op


def mlp(plan: DecoderPlan) -> SwiGLU:
    op = plan.layers[0][1].op
    assert isinstance(op, SwiGLU)
    return op


def windows(**changed: Any) -> list[int]:
    plan = llama.plan(llama_config(**changed))
    return [attention(plan, layer).window for layer in range(len(plan.layers))]


def refusal(**changed: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        llama.plan(llama_config(**changed))
    return caught.value.message


def test_a_plan_holds_what_the_config_says() -> None:
    plan = llama.plan(llama_config())
    assert (plan.family, plan.model_type, plan.width, plan.context) == ("llama", "llama", 64, 512)
    assert plan.embedding == Embedding(256, 64)
    assert plan.head == Head(256, tied=False)
    assert plan.readout == Readout("norm", Norm(1e-5))
    assert plan.stop_ids == {2}
    assert len(plan.layers) == 3
    assert attention(plan) == Attention(heads=4, kv_heads=2, head_dim=16, scale=0.25, rope=Rope(16, 10_000.0))
    assert mlp(plan) == SwiGLU(128)
    assert [s.name for s in plan.layers[0]] == ["attention", "mlp"]
    assert all(s.residual == Plain() and s.pre_norm == Norm(1e-5) and s.post_norm is None for s in plan.layers[0])


def test_kv_heads_default_to_heads_and_head_width_to_an_equal_share() -> None:
    op = attention(llama.plan(llama_config(num_key_value_heads=REMOVED)))
    assert (op.kv_heads, op.head_dim) == (4, 16)


def test_a_stated_head_width_frees_the_heads_from_the_hidden_size() -> None:
    plan = llama.plan(llama_config(num_attention_heads=3, num_key_value_heads=1, head_dim=10))
    assert attention(plan).scale == 10**-0.5
    assert plan.tensors.slots["layers.0.attention.q"].shape == (30, 64)
    assert plan.tensors.slots["layers.2.attention.v"].shape == (10, 64)
    assert plan.tensors.slots["layers.2.attention.out"].shape == (64, 30)


def test_slots_carry_published_names_and_shapes() -> None:
    slots = llama.plan(llama_config()).tensors.slots
    named = {
        path: (slot.names, slot.shape) for path, slot in slots.items() if not path.startswith(("layers.1", "layers.2"))
    }
    assert named == {
        "embedding": (("model.embed_tokens",), (256, 64)),
        "layers.0.attention.pre_norm": (("model.layers.0.input_layernorm",), (64,)),
        "layers.0.attention.q": (("model.layers.0.self_attn.q_proj",), (64, 64)),
        "layers.0.attention.k": (("model.layers.0.self_attn.k_proj",), (32, 64)),
        "layers.0.attention.v": (("model.layers.0.self_attn.v_proj",), (32, 64)),
        "layers.0.attention.out": (("model.layers.0.self_attn.o_proj",), (64, 64)),
        "layers.0.mlp.pre_norm": (("model.layers.0.post_attention_layernorm",), (64,)),
        "layers.0.mlp.gate": (("model.layers.0.mlp.gate_proj",), (128, 64)),
        "layers.0.mlp.up": (("model.layers.0.mlp.up_proj",), (128, 64)),
        "layers.0.mlp.down": (("model.layers.0.mlp.down_proj",), (64, 128)),
        "readout.norm": (("model.norm",), (64,)),
        "head": (("lm_head",), (256, 64)),
    }
    assert len(slots) == 3 + 9 * 3
    assert slots["layers.2.mlp.down"].names == ("model.layers.2.mlp.down_proj",)


def test_a_tied_head_has_no_slot_and_a_repeated_one_is_known() -> None:
    tied = llama.plan(llama_config(tie_word_embeddings=True))
    own = llama.plan(llama_config())
    assert tied.head.tied
    assert "head" not in tied.tensors.slots
    assert "lm_head.*" in tied.tensors.ignored
    assert "lm_head.*" not in own.tensors.ignored
    assert not llama.plan(llama_config(tie_word_embeddings=REMOVED)).head.tied


def test_biases_follow_the_config_and_the_spelling() -> None:
    biased = attention(llama.plan(llama_config(attention_bias=True)))
    assert (biased.qkv_bias, biased.out_bias) == (True, True)
    assert mlp(llama.plan(llama_config(mlp_bias=True))).bias
    # A Qwen 2 always has a bias on its queries, keys and values alone.
    qwen = attention(llama.plan(llama_config(model_type="qwen2")))
    assert (qwen.qkv_bias, qwen.out_bias) == (True, False)
    plain = attention(llama.plan(llama_config(model_type="mistral")))
    assert (plain.qkv_bias, plain.out_bias) == (False, False)


def test_biases_are_part_of_their_modules() -> None:
    slots = llama.plan(llama_config(attention_bias=True, mlp_bias=True)).tensors.slots
    biased = {path.split(".", 2)[2] for path, slot in slots.items() if slot.weight.bias}
    assert biased == {f"attention.{s}" for s in ("q", "k", "v", "out")} | {f"mlp.{s}" for s in ("gate", "up", "down")}


def test_layer_types_say_which_layers_slide() -> None:
    types = ["sliding_attention", "full_attention", "sliding_attention"]
    assert windows(layer_types=types, sliding_window=32) == [32, 0, 32]
    assert windows(layer_types=["full_attention"] * 3, sliding_window=32, use_sliding_window=True) == [0, 0, 0]
    assert windows(layer_types=["full_attention"] * 3) == [0, 0, 0]


def test_without_layer_types_each_spelling_has_its_own_rule() -> None:
    assert windows(sliding_window=32) == [0, 0, 0]
    assert windows(sliding_window=32, use_sliding_window=True) == [32, 32, 32]
    assert windows(use_sliding_window=True) == [0, 0, 0]
    assert windows(model_type="mistral", sliding_window=32) == [32, 32, 32]
    assert windows(model_type="mistral", sliding_window=None) == [0, 0, 0]
    assert windows(model_type="qwen2", sliding_window=32) == [0, 0, 0]
    assert windows(model_type="qwen2", sliding_window=32, use_sliding_window=True) == [0, 0, 0]
    assert windows(model_type="qwen2", sliding_window=32, use_sliding_window=True, max_window_layers=1) == [0, 32, 32]


def test_rope_settings_reach_every_layer() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 128}
    plan = llama.plan(llama_config(rope_scaling=scaling))
    ropes = {attention(plan, layer).rope for layer in range(3)}
    assert ropes == {Rope(16, 10_000.0, "llama3", factor=8.0, original=128)}


def test_the_activation_dtype_is_read_from_either_key() -> None:
    assert llama.plan(llama_config()).activation == "float32"
    assert llama.plan(llama_config(dtype="float16")).activation == "float16"
    assert llama.plan(llama_config(torch_dtype=REMOVED)).activation == "bfloat16"


def test_end_tokens_may_be_several_or_none() -> None:
    assert llama.plan(llama_config(eos_token_id=[2, 255])).stop_ids == {2, 255}
    assert llama.plan(llama_config(eos_token_id=None)).stop_ids == frozenset()


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"model_type": "gpt2"}, "model_type as 'gpt2'; it must be one of llama, mistral, qwen2"),
        ({"hidden_size": REMOVED}, "lacks hidden_size"),
        ({"hidden_size": 0}, "hidden_size as 0; it must be an integer from 1 to 131,072"),
        ({"hidden_size": 131_073}, "hidden_size as 131073"),
        ({"hidden_size": True}, "hidden_size as true"),
        ({"num_hidden_layers": 1001}, "num_hidden_layers as 1001; it must be an integer from 1 to 1,000"),
        ({"num_hidden_layers": -1}, "num_hidden_layers as -1"),
        ({"vocab_size": 5_000_000}, "vocab_size as 5000000; it must be an integer from 1 to 4,194,304"),
        ({"intermediate_size": 1 << 40}, "intermediate_size as 1099511627776"),
        (
            {"num_attention_heads": 5, "num_key_value_heads": 1},
            "num_attention_heads as 5; it must be a divisor of hidden_size (64)",
        ),
        ({"num_attention_heads": 2000}, "num_attention_heads as 2000; it must be an integer from 1 to 1,024"),
        ({"num_key_value_heads": 3}, "num_key_value_heads as 3; it must be a divisor of num_attention_heads (4)"),
        ({"num_key_value_heads": 8}, "num_key_value_heads as 8; it must be an integer from 1 to 4"),
        ({"head_dim": 15}, "15 wide; head_dim must be even and from 2 to 1,024"),
        ({"head_dim": 1026}, "head_dim as 1026"),
        ({"hidden_size": 4, "num_attention_heads": 4}, "1 wide; head_dim must be even"),
        ({"hidden_size": 4096, "num_attention_heads": 2}, "2,048 wide; head_dim must be even and from 2 to 1,024"),
        ({"rms_norm_eps": 0}, "rms_norm_eps as 0"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps as nan"),
        ({"max_position_embeddings": REMOVED}, "lacks max_position_embeddings"),
        ({"hidden_act": "gelu"}, "hidden_act as 'gelu'; it must be one of silu, swish"),
        ({"torch_dtype": "float8"}, "torch_dtype as 'float8'"),
        ({"eos_token_id": 256}, "eos_token_id with 256"),
        ({"layer_types": ["full_attention"]}, "layer_types as a list of 1; it must be a list of 3"),
        ({"layer_types": ["chunked_attention"] * 3}, "layer_types[0] as 'chunked_attention'"),
        ({"layer_types": ["sliding_attention"] * 3}, "lacks sliding_window, which must be an integer of at least 1"),
        ({"sliding_window": 0}, "sliding_window as 0"),
        ({"use_sliding_window": 1}, "use_sliding_window as 1"),
        ({"attention_bias": "no"}, "attention_bias as 'no'"),
    ],
)
def test_a_field_that_cannot_be_used_is_refused_with_its_value_and_limit(changed: dict[str, Any], part: str) -> None:
    assert part in refusal(**changed)


def test_refusing_names_the_backend_and_the_flag_or_the_field() -> None:
    assert llama.refuse(llama_config(), "mlx") is None
    assert llama.refuse(llama_config(), "cuda") is None
    assert llama.refuse(llama_config(), "metal") == (
        "Llama models are served by MLX and CUDA, not by metal: start with `--backend mlx`."
    )
    message = llama.refuse(llama_config(vocab_size=0), "mlx")
    assert message is not None
    assert "vocab_size as 0" in message
    form = llama.refuse(llama_config(quantization_config={"quant_method": "exl3", "bits": 3.0}), "mlx")
    assert form is not None and "quant_method 'exl3', which is not read here" in form


def test_cuda_refuses_layouts_and_widths_that_its_kernels_do_not_read_by_the_matrix() -> None:
    def said(bits: int, group: int, **changes: Any) -> str | None:
        config = llama_config(quantization={"bits": bits, "group_size": group}, **changes)
        assert llama.refuse(config, "mlx") is None
        return llama.refuse(config, "cuda")

    assert said(4, 64) is None and said(3, 128) is None
    assert said(4, 32) == (
        "Llama models are read by CUDA in 2, 3, 4, 5, 6 or 8 bits in groups of 64 or 128 or as plain values, but "
        "config.json states 4 bits in groups of 32 for model.embed_tokens: start with `--backend mlx`."
    )
    narrow = llama.refuse(llama_config(intermediate_size=96), "cuda")
    assert narrow == (
        "CUDA reads matrices whose inputs are a multiple of 64, but config.json makes model.layers.0.mlp.down_proj 96 "
        "wide: start with `--backend mlx`."
    )
