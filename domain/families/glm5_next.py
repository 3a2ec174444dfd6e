"""GLM-5.3-Flash: Kimi delta attention and indexed latent attention among four streams, 288 experts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families.naming import Named, Names, name_weights
from tensorfold.domain.families.ops import (
    BlockIndexer,
    KimiDelta,
    LatentAttention,
    MixtureOfExperts,
    Norm,
    Router,
    SharedExpert,
    ShortConv,
    SwiGLU,
)
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.plans import (
    DecoderPlan,
    Dialect,
    Embedding,
    Head,
    HyperConnections,
    Layer,
    MemoryRule,
    MtpHead,
    Readout,
    Residual,
    Sublayer,
    Tap,
)
from tensorfold.domain.families.tensors import Source, TensorMap

CONFIG: dict[str, Any] = {
    "hidden_size": 4096,
    "vocab_size": 154880,
    "num_hidden_layers": 45,
    "sparse_attention_layers": [3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43],
    "first_k_dense_replace": 3,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 288,
    "num_experts_per_tok": 8,
    "routed_scaling_factor": 2.5,
    "num_attention_heads": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 256,
    "qk_rope_head_dim": 0,
    "v_head_dim": 256,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 2048,
    "index_kpool": 4,
    "linear_num_heads": 64,
    "linear_head_dim": 128,
    "short_conv_kernel_size": 4,
    "gate_lower_bound": -5.0,
    "hc_mult": 4,
    "hc_eps": 1e-6,
    "hc_sinkhorn_iters": 20,
    "swiglu_limit": 10.0,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1048576,
    "eos_token_id": [154820, 154827, 154829],
}


def _either(*names: str | Source) -> Named:
    return Named(names)


def _kimi(path: str, module: str, inner: int, kernel: int) -> dict[str, Names]:
    attention = f"{module}.self_attn"
    table: dict[str, Names] = {}
    for index, part in enumerate("qkv"):
        joint = Source(
            f"{attention}.conv1d", stored=(3 * inner, 1, kernel), cut=(index * inner, (index + 1) * inner), axis=0
        )
        table[f"{path}.{part}"] = f"{attention}.{part}_proj"
        table[f"{path}.{part}_conv"] = _either(f"{attention}.{part}_conv1d", joint)
    gates = f"{attention}.forget_gate"
    return table | {
        f"{path}.decay_down": _either(f"{attention}.f_a_proj", f"{gates}.f_a_proj"),
        f"{path}.decay_up": _either(f"{attention}.f_b_proj", f"{gates}.f_b_proj"),
        f"{path}.gate_down": f"{attention}.g_a_proj",
        f"{path}.gate_up": f"{attention}.g_b_proj",
        f"{path}.beta": f"{attention}.b_proj",
        f"{path}.decay_log": _either(
            Source(f"{attention}.A_log", module=False),
            Source(f"{gates}.A_log", module=False),
            Source(f"{gates}.A", module=False, takes_log=True),
        ),
        f"{path}.step_bias": _either(
            Source(f"{attention}.dt_bias", module=False), Source(f"{gates}.dt_bias", module=False)
        ),
        f"{path}.norm": f"{attention}.o_norm",
        f"{path}.out": f"{attention}.o_proj",
    }


def _latent(config: Mapping[str, Any], path: str, module: str) -> dict[str, Names]:
    attention, indexer = f"{module}.self_attn", f"{module}.self_attn.indexer"
    heads, rank = config["num_attention_heads"], config["kv_lora_rank"]
    keys, values = config["qk_nope_head_dim"], config["v_head_dim"]
    # In one piece each head's key rows stand before its value rows.
    joint = Source(f"{attention}.kv_b_proj", stored=(heads * (keys + values), rank), view=(heads, keys + values, rank))
    return {
        f"{path}.q_down": f"{attention}.q_a_proj",
        f"{path}.q_norm": f"{attention}.q_a_layernorm",
        f"{path}.q_up": f"{attention}.q_b_proj",
        f"{path}.kv_down": f"{attention}.kv_a_proj_with_mqa",
        f"{path}.kv_norm": f"{attention}.kv_a_layernorm",
        f"{path}.key_up": _either(replace(joint, cut=(0, keys)), Source(f"{attention}.embed_q", transposed=True)),
        f"{path}.value_up": _either(replace(joint, cut=(keys, keys + values)), f"{attention}.unembed_out"),
        f"{path}.out": f"{attention}.o_proj",
        f"{path}.indexer.q": f"{indexer}.wq_b",
        f"{path}.indexer.k": f"{indexer}.wk",
        f"{path}.indexer.k_norm": f"{indexer}.k_norm",
        f"{path}.indexer.head_weights": f"{indexer}.weights_proj",
        f"{path}.indexer.gate": Source(f"{indexer}.index_kpool_compress_gate", module=False),
        f"{path}.indexer.offsets": Source(f"{indexer}.index_kpool_compress_ape", module=False),
    }


def _moe(path: str, module: str) -> dict[str, Names]:
    mlp = f"{module}.mlp"
    table: dict[str, Names] = {
        f"{path}.router": Named((f"{mlp}.gate",), rule="plain"),
        f"{path}.router.correction": Source(f"{mlp}.gate.e_score_correction_bias", module=False),
    }
    for part in ("gate", "up", "down"):
        table[f"{path}.{part}"] = f"{mlp}.{part}_proj"
        table[f"{path}.shared.{part}"] = f"{mlp}.shared_experts.{part}_proj"
        table[f"{path}.experts.{part}"] = _either(f"{mlp}.experts.{{e}}.{part}_proj", f"{mlp}.switch_mlp.{part}_proj")
    return table


def _streams(path: str, module: str, site: str) -> dict[str, Names]:
    return {
        f"{path}.residual.{slot}": _either(
            Source(f"{module}.hc_{site}_{name}", module=False), Source(f"{module}.{site}_hc.{name}", module=False)
        )
        for slot, name in {"projection": "fn", "base": "base", "scale": "scale"}.items()
    }


def _names(config: Mapping[str, Any]) -> dict[str, Names]:
    count, inner = config["num_hidden_layers"], config["linear_num_heads"] * config["linear_head_dim"]
    layer, kernel = "layers.*", config["short_conv_kernel_size"]
    # The head of drafts is the layer after the last one, or a block of its own in later conversions.
    own, block = f"layers.{count}", "mtp.0.block"
    head = _merged(_head_layer(config, own), _head_layer(config, block))
    return {
        "embedding": "embed_tokens",
        "readout.norm": "norm",
        "head": "lm_head",
        **_kimi(f"{layer}.delta", layer, inner, kernel),
        **_latent(config, f"{layer}.attention", layer),
        **_moe(f"{layer}.mlp", layer),
        **{f"{layer}.{s}.pre_norm": f"{layer}.input_layernorm" for s in ("delta", "attention")},
        f"{layer}.mlp.pre_norm": f"{layer}.post_attention_layernorm",
        **_streams(f"{layer}.delta", layer, "attn"),
        **_streams(f"{layer}.attention", layer, "attn"),
        **_streams(f"{layer}.mlp", layer, "ffn"),
        **head,
        "mtp.embedding_norm": _either(f"{own}.enorm", "mtp.0.enorm"),
        "mtp.hidden_norm": _either(f"{own}.hnorm", "mtp.0.hnorm"),
        "mtp.join": _either(f"{own}.eh_proj", "mtp.0.eh_proj"),
        "mtp.readout.norm": _either(f"{own}.shared_head.norm", "mtp.0.norm"),
    }


def _head_layer(config: Mapping[str, Any], module: str) -> dict[str, Names]:
    path = "mtp.layers.*"
    return {
        **_latent(config, f"{path}.attention", module),
        **_moe(f"{path}.mlp", module),
        f"{path}.attention.pre_norm": f"{module}.input_layernorm",
        f"{path}.mlp.pre_norm": f"{module}.post_attention_layernorm",
    }


def _merged(first: Mapping[str, Names], second: Mapping[str, Names]) -> dict[str, Names]:
    def listed(names: Names) -> Named:
        return names if isinstance(names, Named) else Named((names,))

    return {
        path: replace(listed(names), names=listed(names).names + listed(second[path]).names)
        for path, names in first.items()
    }


def _mixers(config: Mapping[str, Any], norm: Norm) -> tuple[KimiDelta, LatentAttention]:
    kimi = KimiDelta(
        heads=config["linear_num_heads"],
        head_dim=config["linear_head_dim"],
        gate_rank=config["linear_head_dim"],
        conv=ShortConv(config["linear_num_heads"] * config["linear_head_dim"], config["short_conv_kernel_size"]),
        norm=norm,
        lower_bound=config["gate_lower_bound"],
    )
    indexer = BlockIndexer(
        heads=config["index_n_heads"],
        head_dim=config["index_head_dim"],
        ratio=config["index_kpool"],
        budget=config["index_topk"],
        scale=(config["index_head_dim"] * config["index_n_heads"]) ** -0.5,
        pooling="gated",
        query_from="latent",
        k_norm=Norm(1e-6, layer=True),
        head_weights=True,
    )
    latent = LatentAttention(
        heads=config["num_attention_heads"],
        q_rank=config["q_lora_rank"],
        kv_rank=config["kv_lora_rank"],
        key_dim=config["qk_nope_head_dim"],
        rope_dim=config["qk_rope_head_dim"],
        value_dim=config["v_head_dim"],
        scale=config["qk_nope_head_dim"] ** -0.5,
        q_norm=norm,
        kv_norm=norm,
        indexer=indexer,
    )
    return kimi, latent


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The text model and its head of drafts, which has one plain residual."""
    width, vocabulary, norm = config["hidden_size"], config["vocab_size"], Norm(config["rms_norm_eps"])
    residual = HyperConnections(
        config["hc_mult"],
        "sinkhorn",
        Norm(norm.eps, weight=False),
        iterations=config["hc_sinkhorn_iters"],
        eps=config["hc_eps"],
    )
    kimi, latent = _mixers(config, norm)
    limit = config["swiglu_limit"]
    router = Router(
        config["n_routed_experts"],
        config["num_experts_per_tok"],
        "sigmoid",
        correction=True,
        scale=config["routed_scaling_factor"],
    )
    expert = SwiGLU(config["moe_intermediate_size"], limit=limit)
    sparse = MixtureOfExperts(router, expert, SharedExpert(expert))
    dense = SwiGLU(config["intermediate_size"], limit=limit)

    def layer(index: int, around: Residual) -> Layer:
        full = index in config["sparse_attention_layers"]
        mixer = Sublayer("attention", latent, around, norm) if full else Sublayer("delta", kimi, around, norm)
        mlp = dense if index < config["first_k_dense_replace"] else sparse
        return (mixer, Sublayer("mlp", mlp, around, norm))

    count = config["num_hidden_layers"]
    bare = DecoderPlan(
        family="glm5_next",
        model_type="glm5_next",
        width=width,
        embedding=Embedding(vocabulary, width),
        layers=tuple(layer(index, residual) for index in range(count)),
        readout=Readout("stream_mean_norm", norm),
        head=Head(vocabulary, tied=False),
        context=config["max_position_embeddings"],
        activation="bfloat16",
        tensors=TensorMap({}),
        stop_ids=frozenset(config["eos_token_id"]),
        dialect=Dialect(
            think_open="<think>",
            think_close="</think>",
            opened_by_prompt=True,
            thinks=True,
            efforts=("low", "high", "max"),
            tool_calls="arg_key_value",
        ),
        mtp=MtpHead(
            layers=((Sublayer("attention", latent, pre_norm=norm), Sublayer("mlp", sparse, pre_norm=norm)),),
            tap=Tap(count, "readout"),
            embedding_norm=norm,
            hidden_norm=norm,
            join="concatenate",
            readout=Readout("norm", norm),
            feedback="readout",
            positions="none",
            zero_first_embedding=True,
        ),
        memory=MemoryRule(0.85, 256),
    )
    table = TensorMap(
        name_weights(plan_weights(bare), _names(config)),
        prefixes=("model.language_model.", "language_model.model.", "language_model.", ""),
        ignored=("model.visual.*", "vision_model.*"),
        together=("mtp.",),
    )
    return replace(bare, tensors=table)
