"""Gemma 4 26B-A4B: sliding and full attention, a dense and a routed branch side by side, a scaled residual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families.naming import Named, Names, name_weights
from tensorfold.domain.families.ops import Attention, MixtureOfExperts, Norm, Rope, Router, SwiGLU
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.plans import (
    Branch,
    DecoderPlan,
    Dialect,
    Embedding,
    Head,
    Parallel,
    Readout,
    Sublayer,
)
from tensorfold.domain.families.tensors import Source, TensorMap

CONFIG: dict[str, Any] = {
    "hidden_size": 2816,
    "num_hidden_layers": 30,
    "vocab_size": 262144,
    "full_every": 6,
    "sliding_window": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "num_global_key_value_heads": 2,
    "global_head_dim": 512,
    "intermediate_size": 2112,
    "num_experts": 128,
    "top_k_experts": 8,
    "moe_intermediate_size": 704,
    "rms_norm_eps": 1e-6,
    "sliding_theta": 10_000,
    "full_theta": 1_000_000,
    "partial_rotary_factor": 0.25,
    "final_logit_softcapping": 30.0,
    "max_position_embeddings": 262144,
    "eos_token_id": [1, 106, 50],
}
_LAYER = "layers.*"


def _expert(part: str, inner: int, experts: int, width: int, cut: tuple[int, int] | None) -> Named:
    fused = Source(f"{_LAYER}.experts.gate_up_proj", module=False, stored=(experts, 2 * inner, width), cut=cut)
    stacked = Source(f"{_LAYER}.experts.{part}_proj", module=False)
    return Named((f"{_LAYER}.experts.switch_glu.{part}_proj", fused if cut else stacked))


def _names(config: Mapping[str, Any]) -> dict[str, Names]:
    inner, experts, width = config["moe_intermediate_size"], config["num_experts"], config["hidden_size"]
    return {
        "embedding": "embed_tokens",
        "readout.norm": "norm",
        "layers.*.attention.pre_norm": f"{_LAYER}.input_layernorm",
        "layers.*.attention.post_norm": f"{_LAYER}.post_attention_layernorm",
        "layers.*.attention.q": f"{_LAYER}.self_attn.q_proj",
        "layers.*.attention.k": f"{_LAYER}.self_attn.k_proj",
        "layers.*.attention.v": f"{_LAYER}.self_attn.v_proj",
        "layers.*.attention.out": f"{_LAYER}.self_attn.o_proj",
        "layers.*.attention.q_norm": f"{_LAYER}.self_attn.q_norm",
        "layers.*.attention.k_norm": f"{_LAYER}.self_attn.k_norm",
        "layers.*.feed.dense.pre_norm": f"{_LAYER}.pre_feedforward_layernorm",
        "layers.*.feed.dense.gate": f"{_LAYER}.mlp.gate_proj",
        "layers.*.feed.dense.up": f"{_LAYER}.mlp.up_proj",
        "layers.*.feed.dense.down": f"{_LAYER}.mlp.down_proj",
        "layers.*.feed.dense.post_norm": f"{_LAYER}.post_feedforward_layernorm_1",
        "layers.*.feed.routed.pre_norm": f"{_LAYER}.pre_feedforward_layernorm_2",
        "layers.*.feed.routed.router": f"{_LAYER}.router.proj",
        "layers.*.feed.routed.router.input_scale": Source(f"{_LAYER}.router.scale", module=False),
        "layers.*.feed.routed.router.expert_scale": Source(f"{_LAYER}.router.per_expert_scale", module=False),
        "layers.*.feed.routed.experts.gate": _expert("gate", inner, experts, width, (0, inner)),
        "layers.*.feed.routed.experts.up": _expert("up", inner, experts, width, (inner, 2 * inner)),
        "layers.*.feed.routed.experts.down": _expert("down", inner, experts, width, None),
        "layers.*.feed.routed.post_norm": f"{_LAYER}.post_feedforward_layernorm_2",
        "layers.*.feed.post_norm": f"{_LAYER}.post_feedforward_layernorm",
        "layers.*.feed.scale": Source(f"{_LAYER}.layer_scalar", module=False),
    }


def _attention(config: Mapping[str, Any], full: bool, norm: Norm) -> Attention:
    head_dim = config["global_head_dim"] if full else config["head_dim"]
    turning = int(head_dim * config["partial_rotary_factor"])
    rope = Rope(head_dim, float(config["sliding_theta"]))
    if full:
        rope = Rope(head_dim, float(config["full_theta"]), "proportional", rotated=turning, denominator=head_dim)
    return Attention(
        heads=config["num_attention_heads"],
        kv_heads=config["num_global_key_value_heads" if full else "num_key_value_heads"],
        head_dim=head_dim,
        scale=1.0,
        rope=rope,
        window=0 if full else config["sliding_window"],
        q_norm=norm,
        k_norm=norm,
        v_norm=Norm(norm.eps, weight=False),
        values_from_keys=full,
    )


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The text model."""
    width, vocabulary, norm = config["hidden_size"], config["vocab_size"], Norm(config["rms_norm_eps"])
    router = Router(
        config["num_experts"],
        config["top_k_experts"],
        "softmax",
        from_residual=True,
        input_norm=Norm(norm.eps, weight=False),
        input_factor=width**-0.5,
        input_scale=True,
        expert_scale=True,
    )
    routed = MixtureOfExperts(router, SwiGLU(config["moe_intermediate_size"], "gelu_tanh"))
    dense = SwiGLU(config["intermediate_size"], "gelu_tanh")
    branches = Parallel((Branch("dense", dense, norm, norm), Branch("routed", routed, norm, norm)))
    feed = Sublayer("feed", branches, post_norm=norm, scale=True)
    mixers = {
        full: Sublayer("attention", _attention(config, full, norm), pre_norm=norm, post_norm=norm)
        for full in (False, True)
    }
    count, every = config["num_hidden_layers"], config["full_every"]
    bare = DecoderPlan(
        family="gemma4",
        model_type="gemma4",
        width=width,
        embedding=Embedding(vocabulary, width, multiplier=width**0.5),
        layers=tuple((mixers[(layer + 1) % every == 0], feed) for layer in range(count)),
        readout=Readout("norm", norm),
        head=Head(vocabulary, tied=True, softcap=config["final_logit_softcapping"]),
        context=config["max_position_embeddings"],
        activation="bfloat16",
        tensors=TensorMap({}),
        stop_ids=frozenset(config["eos_token_id"]),
        dialect=Dialect(
            think_open="<|channel>thought\n",
            think_close="<channel|>",
            thinking_flag="enable_thinking",
            tool_calls="gemma4",
        ),
    )
    table = TensorMap(
        name_weights(plan_weights(bare), _names(config)),
        prefixes=("model.language_model.", "language_model.model."),
        ignored=("*vision_tower.*", "*audio_tower.*", "*embed_vision.*", "*embed_audio.*"),
        bits=(4,),
        groups=(32, 64),
        router_bits=(8,),
    )
    return replace(bare, tensors=table)
