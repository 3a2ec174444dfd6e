"""Nemotron 3.5 Lightning: one op a block, of Mamba-2, attention without positions, or experts without a gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families.naming import Named, Names, name_weights
from tensorfold.domain.families.ops import (
    Attention,
    FeedForward,
    Mamba2,
    MixtureOfExperts,
    Norm,
    Op,
    Router,
    SharedExpert,
    ShortConv,
)
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
from tensorfold.domain.families.tensors import SideFile, Source, TensorMap

CONFIG: dict[str, Any] = {
    "hidden_size": 2688,
    "vocab_size": 131072,
    "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "n_routed_experts": 128,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "routed_scaling_factor": 2.5,
    "layer_norm_epsilon": 1e-5,
    "max_position_embeddings": 262144,
    "mtp_hybrid_override_pattern": "*E",
    "eos_token_id": 2,
}
_KINDS = {"M": "mamba", "*": "attention", "E": "experts"}


def _mixer(path: str, module: str) -> dict[str, Names]:
    names: dict[str, dict[str, Names]] = {
        "mamba": {
            "in": "in_proj",
            "conv": "conv1d",
            "decay_log": Source("A_log", module=False),
            "skip": Source("D", module=False),
            "step_bias": Source("dt_bias", module=False),
            "norm": "norm",
            "out": "out_proj",
        },
        "attention": {"q": "q_proj", "k": "k_proj", "v": "v_proj", "out": "o_proj"},
        "experts": {
            "router": Named(("gate",), rule="plain"),
            "router.correction": Source("gate.e_score_correction_bias", module=False),
            "experts.up": Named(("switch_mlp.fc1", "experts.{e}.up_proj")),
            "experts.down": Named(("switch_mlp.fc2", "experts.{e}.down_proj")),
            "shared.up": "shared_experts.up_proj",
            "shared.down": "shared_experts.down_proj",
        },
    }
    table: dict[str, Names] = {}
    for kind, slots in names.items():
        table[f"{path}.{kind}.pre_norm"] = f"{module}.norm"
        for slot, name in slots.items():
            table[f"{path}.{kind}.{slot}"] = _below(f"{module}.mixer", name)
    return table


def _below(module: str, names: Names) -> Names:
    if isinstance(names, Named):
        return replace(names, names=tuple(f"{module}.{name}" for name in names.names))
    return f"{module}.{names}" if isinstance(names, str) else replace(names, name=f"{module}.{names.name}")


NAMES: dict[str, Names] = {
    "embedding": "backbone.embeddings",
    "readout.norm": "backbone.norm_f",
    "head": "lm_head",
    **_mixer("layers.*", "backbone.layers.*"),
    "mtp.embedding_norm": "mtp.layers.0.enorm",
    "mtp.hidden_norm": "mtp.layers.0.hnorm",
    "mtp.join": "mtp.layers.0.eh_proj",
    "mtp.readout.norm": "mtp.layers.1.final_layernorm",
    **_mixer("mtp.layers.*", "mtp.layers.*"),
}


def _ops(config: Mapping[str, Any]) -> dict[str, Layer]:
    norm = Norm(config["layer_norm_epsilon"])
    inner = config["mamba_num_heads"] * config["mamba_head_dim"]
    mamba = Mamba2(
        heads=config["mamba_num_heads"],
        head_dim=config["mamba_head_dim"],
        state=config["ssm_state_size"],
        groups=config["n_groups"],
        conv=ShortConv(inner + 2 * config["n_groups"] * config["ssm_state_size"], config["conv_kernel"], bias=True),
        norm=replace(norm, groups=config["n_groups"]),
        step_limit=config.get("time_step_limit"),
    )
    attention = Attention(
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        scale=config["head_dim"] ** -0.5,
    )
    experts = MixtureOfExperts(
        Router(
            config["n_routed_experts"],
            config["num_experts_per_tok"],
            "sigmoid",
            correction=True,
            scale=config["routed_scaling_factor"],
        ),
        FeedForward(config["moe_intermediate_size"]),
        SharedExpert(FeedForward(config["moe_shared_expert_intermediate_size"])),
        latent=config.get("moe_latent_size") or 0,
    )
    ops: dict[str, Op] = {"M": mamba, "*": attention, "E": experts}
    return {letter: (Sublayer(_KINDS[letter], op, pre_norm=norm),) for letter, op in ops.items()}


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The model and the head of drafts of its side file."""
    norm, width, vocabulary = Norm(config["layer_norm_epsilon"]), config["hidden_size"], config["vocab_size"]
    ops, pattern = _ops(config), config["hybrid_override_pattern"]
    bare = DecoderPlan(
        family="nemotron_h",
        model_type="nemotron_h",
        width=width,
        embedding=Embedding(vocabulary, width),
        layers=tuple(ops[letter] for letter in pattern),
        readout=Readout("norm", norm),
        head=Head(vocabulary, tied=False),
        context=config["max_position_embeddings"],
        activation="bfloat16",
        tensors=TensorMap({}),
        stop_ids=frozenset({config["eos_token_id"]}),
        dialect=Dialect(
            think_open="<think>",
            think_close="</think>",
            opened_by_prompt=True,
            thinking_flag="enable_thinking",
            thinks=True,
            tool_calls="function_parameters",
        ),
        mtp=MtpHead(
            layers=tuple(ops[letter] for letter in config["mtp_hybrid_override_pattern"]),
            tap=Tap(len(pattern), "readout"),
            embedding_norm=norm,
            hidden_norm=norm,
            join="concatenate",
            readout=Readout("norm", norm),
            feedback="readout",
            positions="none",
        ),
    )
    table = TensorMap(
        name_weights(plan_weights(bare), NAMES),
        together=("mtp.",),
        side_files=(SideFile("mtp-4bit.safetensors", "mtp."),),
    )
    return replace(bare, tensors=table)
