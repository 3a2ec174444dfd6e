"""Qwen3.8 Flash Next: delta nets and indexed attention among four streams, 512 experts, and a hashed n-gram table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families import qwen3_5
from tensorfold.domain.families.naming import Named, Names, name_weights
from tensorfold.domain.families.ops import (
    BlockIndexer,
    HashedNgram,
    IndexedAttention,
    MixtureOfExperts,
    Norm,
    Rope,
    Router,
    SharedExpert,
    ShortConv,
    SwiGLU,
)
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.plans import (
    DecoderPlan,
    Embedding,
    Head,
    HyperConnections,
    Layer,
    MtpHead,
    Readout,
    Sublayer,
    Tap,
)
from tensorfold.domain.families.tensors import Source, TensorMap

CONFIG: dict[str, Any] = qwen3_5.CONFIG | {
    "hidden_size": 2560,
    "num_hidden_layers": 48,
    "num_key_value_heads": 2,
    "output_gate_type": "sigmoid",
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 640,
    "shared_expert_intermediate_size": 640,
    "hc_count": 4,
    "hc_lowrank": 320,
    "ple_layer_ids": [2],
    "ple_embed_dim": 2560,
    "ple_conv_kernel_size": 4,
    "ngram_size": 3,
    "heads_per_ngram": 8,
    "ngram_vocab_size_base": 20_000_000,
    "make_ngram_vocab_size_divisible_by": 128,
    "split_ngram_parts": 128,
    "seed": 1234,
    "indexer_n_heads": 4,
    "indexer_head_dim": 128,
    "indexer_budget": 2048,
    "compress_ratio": 4,
}
_GOLDEN, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def around(name: str) -> Named:
    """A norm that some conversions store around zero and others around one."""
    return Named((name,), centring="by_value")


_MOE: dict[str, Names] = {
    "router": Named(("mlp.gate",), rule="plain"),
    "shared.switch": "mlp.shared_expert_gate",
    "shared.gate": "mlp.shared_expert.gate_proj",
    "shared.up": "mlp.shared_expert.up_proj",
    "shared.down": "mlp.shared_expert.down_proj",
}
_INDEXER: dict[str, Names] = {
    "indexer.q_norm": around("self_attn.indexer.q_layernorm"),
    "indexer.k_norm": around("self_attn.indexer.k_layernorm"),
}
_ATTENTION: dict[str, Names] = {
    **qwen3_5.ATTENTION,
    "q_norm": around("self_attn.q_norm"),
    "k_norm": around("self_attn.k_norm"),
    **_INDEXER,
}


def _residual(path: str, module: str) -> dict[str, Names]:
    return {
        f"{path}.norm": around(f"{module}.hc_norm"),
        f"{path}.down": f"{module}.input_mix_weight_down",
        f"{path}.up": f"{module}.input_mix_weight_up",
        f"{path}.inject": f"{module}.block_inject_weight",
    }


def _experts(module: str, experts: int, inner: int, width: int) -> dict[str, Names]:
    """Stacked as converted, fused and stacked as first published, or one tensor for each expert."""

    def named(part: str, cut: tuple[int, int] | None) -> Named:
        fused = Source(f"{module}.experts.gate_up_proj", module=False, stored=(experts, 2 * inner, width), cut=cut)
        stacked = Source(f"{module}.experts.{part}_proj", module=False)
        each = f"{module}.experts.{{e}}.{part}_proj"
        return Named((f"{module}.switch_mlp.{part}_proj", each, fused if cut else stacked))

    return {"gate": named("gate", (0, inner)), "up": named("up", (inner, 2 * inner)), "down": named("down", None)}


def _layer_names(config: Mapping[str, Any], path: str, module: str) -> dict[str, Names]:
    heads, width = config["indexer_n_heads"] * config["indexer_head_dim"], config["hidden_size"]
    joint = (heads + config["indexer_head_dim"], width)
    fused = f"{module}.self_attn.indexer.index_qk_proj"
    experts = _experts(f"{module}.mlp", config["num_experts"], config["moe_intermediate_size"], width)
    return {
        **qwen3_5.placed(f"{path}.delta", module, qwen3_5.DELTA),
        **_residual(f"{path}.delta.residual", f"{module}.attn_hyper_connection"),
        **qwen3_5.placed(f"{path}.attention", module, _ATTENTION),
        f"{path}.attention.indexer.q": Source(fused, stored=joint, cut=(0, heads)),
        f"{path}.attention.indexer.k": Source(fused, stored=joint, cut=(heads, joint[0])),
        **_residual(f"{path}.attention.residual", f"{module}.attn_hyper_connection"),
        **qwen3_5.placed(f"{path}.mlp", module, _MOE),
        **{f"{path}.mlp.experts.{slot}": names for slot, names in experts.items()},
        **_residual(f"{path}.mlp.residual", f"{module}.mlp_hyper_connection"),
    }


def _ngram_names(config: Mapping[str, Any], op: HashedNgram) -> dict[str, Names]:
    path, module = "layers.*.ngram", "layers.*.ple"
    table = f"{module}.ple_embedding.ngram_embedding"
    whole = (op.shards * op.shard_rows, op.row_width)
    joint = Source(table, stored=whole, view=(op.shards, op.shard_rows, op.row_width))
    return {
        f"{path}.table": Named((f"{table}.shard_{{e}}", joint)),
        f"{path}.key": f"{module}.key_proj",
        f"{path}.value": f"{module}.value_proj",
        f"{path}.key_norm": around(f"{module}.norm_key"),
        f"{path}.query_norm": around(f"{module}.norm_query"),
        f"{path}.conv_norm": around(f"{module}.norm_conv"),
        f"{path}.conv": f"{module}.conv1d",
        f"{path}.multipliers": Source(f"{module}.ple_embedding.layer_multipliers", module=False),
        f"{path}.table_sizes": Source(f"{module}.ple_embedding.ngram_heads_vocab_sizes", module=False),
        f"{path}.offsets": Source(f"{module}.ple_embedding.ngram_heads_offsets", module=False),
    }


def _names(config: Mapping[str, Any], op: HashedNgram) -> dict[str, Names]:
    mixer = {"norm": "hc_norm", "down": "input_mix_weight_down", "up": "input_mix_weight_up"}
    return {
        "embedding": "embed_tokens",
        "head": "lm_head",
        "readout.mixer.norm": around("hyper_connection_mixer.hc_norm"),
        **{f"readout.mixer.{s}": f"hyper_connection_mixer.{n}" for s, n in mixer.items() if s != "norm"},
        **_layer_names(config, "layers.*", "layers.*"),
        **_ngram_names(config, op),
        "mtp.embedding_norm": around("mtp.pre_fc_norm_embedding"),
        "mtp.hidden_norm": around("mtp.pre_fc_norm_hidden"),
        "mtp.join_embedding": "mtp.fc_embedding",
        "mtp.join_hidden": "mtp.fc_hidden",
        "mtp.readout.mixer.norm": around("mtp.hyper_connection_mixer.hc_norm"),
        **{f"mtp.readout.mixer.{s}": f"mtp.hyper_connection_mixer.{n}" for s, n in mixer.items() if s != "norm"},
        **_layer_names(config, "mtp.layers.*", "mtp.layers.*"),
    }


def multipliers(seed: int, layer: int, count: int, vocabulary: int) -> tuple[int, ...]:
    """The odd hash multipliers of one table."""
    half = ((1 << 63) - 1) // vocabulary // 2
    return tuple(2 * (_mixed(seed + 10007 * layer + _GOLDEN * (i + 2)) % half) + 1 for i in range(count))


def _mixed(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def primes_from(first: int, count: int) -> tuple[int, ...]:
    """The `count` primes at and above `first`."""
    found: list[int] = []
    while len(found) < count:
        if all(first % d for d in range(2, int(first**0.5) + 1)):
            found.append(first)
        first += 1
    return tuple(found)


def ngram(config: Mapping[str, Any], norm: Norm) -> HashedNgram:
    """The hashed table and its gate."""
    streams, width, size = config["hc_count"], config["hidden_size"], config["ngram_size"]
    heads = (size - 1) * config["heads_per_ngram"]
    sizes = primes_from(config["ngram_vocab_size_base"], heads)
    unit, shards = config["make_ngram_vocab_size_divisible_by"], config["split_ngram_parts"]
    rows = -(-sum(sizes) // unit) * unit
    return HashedNgram(
        streams=streams,
        ngram=size,
        heads_per_ngram=config["heads_per_ngram"],
        table_sizes=sizes,
        multipliers=multipliers(config["seed"], 0, size, config["vocab_size"]),
        row_width=config["ple_embed_dim"] // heads,
        shards=shards,
        shard_rows=rows // shards,
        boundary_token=config["eos_token_id"],
        conv=ShortConv(streams * width, config["ple_conv_kernel_size"], dilation=size),
        norm=norm,
    )


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The model, its table and its head of drafts included."""
    streams, width, vocabulary = config["hc_count"], config["hidden_size"], config["vocab_size"]
    norm, grouped = Norm(config["rms_norm_eps"]), Norm(config["rms_norm_eps"], groups=streams)
    residual = HyperConnections(streams, "lowrank", grouped, rank=config["hc_lowrank"])
    indexer = BlockIndexer(
        heads=config["indexer_n_heads"],
        head_dim=config["indexer_head_dim"],
        ratio=config["compress_ratio"],
        budget=config["indexer_budget"],
        scale=config["indexer_head_dim"] ** -0.5,
        pooling="mean",
        query_from="input",
        q_norm=norm,
        k_norm=norm,
        rope=Rope(int(config["head_dim"] * config["partial_rotary_factor"]), float(config["rope_theta"])),
    )
    experts = MixtureOfExperts(
        Router(config["num_experts"], config["num_experts_per_tok"], "softmax"),
        SwiGLU(config["moe_intermediate_size"]),
        SharedExpert(SwiGLU(config["shared_expert_intermediate_size"]), gated=True),
    )
    mlp = Sublayer("mlp", experts, residual)
    full: Layer = (Sublayer("attention", IndexedAttention(qwen3_5.attention(config), indexer), residual), mlp)
    linear: Layer = (Sublayer("delta", qwen3_5.delta(config), residual), mlp)
    hashed = ngram(config, grouped)
    # The listed layers count from one.
    extra = {layer - 1: (Sublayer("ngram", hashed),) for layer in config["ple_layer_ids"]}
    count, every = config["num_hidden_layers"], config["full_attention_interval"]
    layers = (extra.get(i, ()) + (full if (i + 1) % every == 0 else linear) for i in range(count))
    bare = DecoderPlan(
        family="qwen4_exp",
        model_type="qwen4_exp",
        width=width,
        embedding=Embedding(vocabulary, width),
        layers=tuple(layers),
        readout=Readout("hyper_mixer", mixer=residual),
        head=Head(vocabulary, tied=False),
        context=config["max_position_embeddings"],
        activation="bfloat16",
        tensors=TensorMap({}),
        stop_ids=frozenset({config["eos_token_id"]}),
        dialect=qwen3_5.DIALECT,
        mtp=MtpHead(
            layers=(full,) * config["mtp_num_hidden_layers"],
            tap=Tap(count, "streams"),
            embedding_norm=norm,
            hidden_norm=norm,
            join="add_per_stream",
            readout=Readout("hyper_mixer", mixer=residual),
            feedback="streams",
            positions="entry",
        ),
        prefill_chunks=(8192, 4096, 2048),
    )
    table = TensorMap(
        name_weights(plan_weights(bare), _names(config, hashed)),
        prefixes=qwen3_5.PREFIXES,
        ignored=qwen3_5.IGNORED,
        bits=(4,),
        groups=(32,),
        together=("mtp.",),
        probes="layers.*.residual.norm",
    )
    return replace(bare, tensors=table)
