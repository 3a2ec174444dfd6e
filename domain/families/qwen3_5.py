"""Qwen3.8-27B: gated delta nets with a gated attention in every fourth layer, and a head for one more token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families.naming import Named, Names, name_weights
from tensorfold.domain.families.ops import Attention, GatedDelta, Norm, Rope, ShortConv, SwiGLU
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.plans import (
    DecoderPlan,
    Dialect,
    Embedding,
    Head,
    Layer,
    MtpHead,
    Readout,
    Sublayer,
    Tap,
)
from tensorfold.domain.families.tensors import Source, TensorMap

CONFIG: dict[str, Any] = {
    "hidden_size": 5120,
    "vocab_size": 248320,
    "num_hidden_layers": 64,
    "intermediate_size": 17408,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262144,
    "partial_rotary_factor": 0.25,
    "rope_theta": 10_000_000,
    "eos_token_id": 248044,
    "mtp_num_hidden_layers": 1,
}
PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")
IGNORED = ("model.visual.*", "vision_tower.*", "*.rotary_emb.inv_freq")
DIALECT = Dialect(
    think_open="<think>",
    think_close="</think>",
    opened_by_prompt=True,
    thinking_flag="enable_thinking",
    thinks=True,
    efforts=("low", "medium", "xhigh"),
    tool_calls="function_parameters",
)


def centred(name: str) -> Named:
    """A norm that original files store around zero."""
    return Named((name,), centring="by_conv_layout")


def always_centred(name: str) -> Named:
    """A norm of the draft head, which no conversion shifts."""
    return Named((name,), centring="always")


DELTA: dict[str, Names] = {
    "qkv": "linear_attn.in_proj_qkv",
    "z": "linear_attn.in_proj_z",
    "a": "linear_attn.in_proj_a",
    "b": "linear_attn.in_proj_b",
    "conv": "linear_attn.conv1d",
    "decay_log": Source("linear_attn.A_log", module=False),
    "step_bias": Source("linear_attn.dt_bias", module=False),
    "norm": "linear_attn.norm",
    "out": "linear_attn.out_proj",
}
ATTENTION: dict[str, Names] = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.o_proj",
    "q_norm": centred("self_attn.q_norm"),
    "k_norm": centred("self_attn.k_norm"),
}
MLP: dict[str, Names] = {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}


def placed(path: str, module: str, table: Mapping[str, Names], *, always: bool = False) -> dict[str, Names]:
    """A table of one sublayer put below a slot path and a module path."""
    return {f"{path}.{slot}": _below(module, names, always) for slot, names in table.items()}


def _below(module: str, names: Names, always: bool) -> Names:
    if isinstance(names, Named):
        inner = tuple(_below_one(module, name) for name in names.names)
        shifts = always and names.centring == "by_conv_layout"
        return replace(names, names=inner, centring="always" if shifts else names.centring)
    return _below_one(module, names)


def _below_one(module: str, name: str | Source) -> str | Source:
    return f"{module}.{name}" if isinstance(name, str) else replace(name, name=f"{module}.{name.name}")


NAMES: dict[str, Names] = {
    "embedding": "embed_tokens",
    "readout.norm": centred("norm"),
    "head": "lm_head",
    "layers.*.delta.pre_norm": centred("layers.*.input_layernorm"),
    **placed("layers.*.delta", "layers.*", DELTA),
    "layers.*.attention.pre_norm": centred("layers.*.input_layernorm"),
    **placed("layers.*.attention", "layers.*", ATTENTION),
    "layers.*.mlp.pre_norm": centred("layers.*.post_attention_layernorm"),
    **placed("layers.*.mlp", "layers.*", MLP),
    "mtp.embedding_norm": always_centred("mtp.pre_fc_norm_embedding"),
    "mtp.hidden_norm": always_centred("mtp.pre_fc_norm_hidden"),
    "mtp.join": "mtp.fc",
    "mtp.readout.norm": always_centred("mtp.norm"),
    "mtp.layers.*.attention.pre_norm": always_centred("mtp.layers.*.input_layernorm"),
    **placed("mtp.layers.*.attention", "mtp.layers.*", ATTENTION, always=True),
    "mtp.layers.*.mlp.pre_norm": always_centred("mtp.layers.*.post_attention_layernorm"),
    **placed("mtp.layers.*.mlp", "mtp.layers.*", MLP),
}


def attention(config: Mapping[str, Any]) -> Attention:
    """Gated attention with normed heads and rotary positions on a quarter of each."""
    norm, width = Norm(config["rms_norm_eps"]), config["head_dim"]
    return Attention(
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=width,
        scale=width**-0.5,
        rope=Rope(int(width * config["partial_rotary_factor"]), float(config["rope_theta"])),
        q_norm=norm,
        k_norm=norm,
        output_gate=True,
    )


def delta(config: Mapping[str, Any]) -> GatedDelta:
    """The gated delta net of the other layers."""
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] * config["linear_value_head_dim"]
    return GatedDelta(
        key_heads=config["linear_num_key_heads"],
        value_heads=config["linear_num_value_heads"],
        key_dim=config["linear_key_head_dim"],
        value_dim=config["linear_value_head_dim"],
        conv=ShortConv(2 * keys + values, config["linear_conv_kernel_dim"]),
        norm=Norm(config["rms_norm_eps"]),
        gate=config.get("output_gate_type", "silu"),
    )


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The model, its head of drafts included."""
    norm, width, vocabulary = Norm(config["rms_norm_eps"]), config["hidden_size"], config["vocab_size"]
    mlp = Sublayer("mlp", SwiGLU(config["intermediate_size"]), pre_norm=norm)
    full: Layer = (Sublayer("attention", attention(config), pre_norm=norm), mlp)
    linear: Layer = (Sublayer("delta", delta(config), pre_norm=norm), mlp)
    count, every = config["num_hidden_layers"], config["full_attention_interval"]
    bare = DecoderPlan(
        family="qwen3_5",
        model_type="qwen3_5",
        width=width,
        embedding=Embedding(vocabulary, width),
        layers=tuple(full if (layer + 1) % every == 0 else linear for layer in range(count)),
        readout=Readout("norm", norm),
        head=Head(vocabulary, tied=False),
        context=config["max_position_embeddings"],
        activation="bfloat16",
        tensors=TensorMap({}),
        stop_ids=frozenset({config["eos_token_id"]}),
        dialect=DIALECT,
        mtp=MtpHead(
            layers=(full,) * config["mtp_num_hidden_layers"],
            tap=Tap(count, "readout"),
            embedding_norm=norm,
            hidden_norm=norm,
            join="concatenate",
            readout=Readout("norm", norm),
            feedback="readout",
            positions="entry",
            draft_ids=((0, 98304), (248032, 248320)),
        ),
        max_window=128,
    )
    slots = name_weights(plan_weights(bare), NAMES)
    return replace(bare, tensors=TensorMap(slots, prefixes=PREFIXES, ignored=IGNORED, together=("mtp.",)))
