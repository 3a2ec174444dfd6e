"""Tensor names of Qwen3.8 Flash Next in its published layouts: experts stacked, fused or one by one, tables in shards.

Names only. Norms are stored around zero in some conversions and around one in others under the same names, so their
values must tell.
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorfold.domain.families.naming import Named, Names, placed
from tensorfold.domain.families.ops import BlockIndexer, HashedNgram, MixtureOfExperts
from tensorfold.domain.families.qwen_mixers import DELTA_NAMES, attention_names, normed
from tensorfold.domain.families.tensors import Centring, Source

PROBES = "layers.*.residual.norm"
_AROUND: Centring = "by_value"
_MIXER = {"down": "input_mix_weight_down", "up": "input_mix_weight_up"}
_ATTENTION: dict[str, Names] = {
    **attention_names(_AROUND),
    "indexer.q_norm": normed("self_attn.indexer.q_layernorm", _AROUND),
    "indexer.k_norm": normed("self_attn.indexer.k_layernorm", _AROUND),
}
_MOE: dict[str, Names] = {
    # Logits that tie at the cut are common, so the router is never quantized.
    "router": Named(("mlp.gate",), rule="plain"),
    "shared.switch": "mlp.shared_expert_gate",
    "shared.gate": "mlp.shared_expert.gate_proj",
    "shared.up": "mlp.shared_expert.up_proj",
    "shared.down": "mlp.shared_expert.down_proj",
}


def decoder_names(
    width: int, indexer: BlockIndexer, moe: MixtureOfExperts, table: HashedNgram | None
) -> dict[str, Names]:
    """The whole model's names, its head of drafts included."""
    return {
        "embedding": "embed_tokens",
        "head": "lm_head",
        **_mixer("readout.mixer", "hyper_connection_mixer"),
        **_layer("layers.*", width, indexer, moe),
        **({} if table is None else _ngram(table)),
        "mtp.embedding_norm": normed("mtp.pre_fc_norm_embedding", _AROUND),
        "mtp.hidden_norm": normed("mtp.pre_fc_norm_hidden", _AROUND),
        "mtp.join_embedding": "mtp.fc_embedding",
        "mtp.join_hidden": "mtp.fc_hidden",
        **_mixer("mtp.readout.mixer", "mtp.hyper_connection_mixer"),
        **_layer("mtp.layers.*", width, indexer, moe),
    }


def _mixer(path: str, module: str) -> dict[str, Names]:
    down_and_up = {f"{path}.{slot}": f"{module}.{name}" for slot, name in _MIXER.items()}
    return {f"{path}.norm": normed(f"{module}.hc_norm", _AROUND), **down_and_up}


def _layer(module: str, width: int, indexer: BlockIndexer, moe: MixtureOfExperts) -> Mapping[str, Names]:
    queries = indexer.heads * indexer.head_dim
    joint = (queries + indexer.head_dim, width)
    fused = f"{module}.self_attn.indexer.index_qk_proj"
    # Slot paths and module paths of a layer are spelled alike.
    sites = {"delta": "attn", "attention": "attn", "mlp": "mlp"}
    return {
        **placed(f"{module}.delta", module, DELTA_NAMES),
        **placed(f"{module}.attention", module, _ATTENTION),
        f"{module}.attention.indexer.q": Source(fused, stored=joint, cut=(0, queries)),
        f"{module}.attention.indexer.k": Source(fused, stored=joint, cut=(queries, joint[0])),
        **placed(f"{module}.mlp", module, _MOE),
        **_experts(f"{module}.mlp", moe, width),
        **{
            path: names
            for name, site in sites.items()
            for path, names in _residual(f"{module}.{name}.residual", f"{module}.{site}_hyper_connection").items()
        },
    }


def _residual(path: str, module: str) -> dict[str, Names]:
    return {**_mixer(path, module), f"{path}.inject": f"{module}.block_inject_weight"}


def _experts(module: str, moe: MixtureOfExperts, width: int) -> dict[str, Names]:
    """Stacked as converted, one tensor for each expert, or fused and stacked as first published."""
    inner, count = moe.expert.width, moe.router.experts

    def named(part: str, cut: tuple[int, int] | None) -> Named:
        fused = Source(f"{module}.experts.gate_up_proj", module=False, stored=(count, 2 * inner, width), cut=cut)
        stacked = Source(f"{module}.experts.{part}_proj", module=False)
        each = f"{module}.experts.{{e}}.{part}_proj"
        return Named((f"{module}.switch_mlp.{part}_proj", each, fused if cut else stacked))

    cuts = {"gate": (0, inner), "up": (inner, 2 * inner), "down": None}
    return {f"{module}.experts.{part}": named(part, cut) for part, cut in cuts.items()}


def _ngram(op: HashedNgram) -> dict[str, Names]:
    path, module = "layers.*.ngram", "layers.*.ple"
    embedding = f"{module}.ple_embedding"
    table = f"{embedding}.ngram_embedding"
    whole = (op.shards * op.shard_rows, op.row_width)
    joint = Source(table, stored=whole, view=(op.shards, op.shard_rows, op.row_width))
    return {
        f"{path}.table": Named((f"{table}.shard_{{e}}", joint)),
        f"{path}.key": f"{module}.key_proj",
        f"{path}.value": f"{module}.value_proj",
        f"{path}.key_norm": normed(f"{module}.norm_key", _AROUND),
        f"{path}.query_norm": normed(f"{module}.norm_query", _AROUND),
        f"{path}.conv_norm": normed(f"{module}.norm_conv", _AROUND),
        f"{path}.conv": f"{module}.conv1d",
        f"{path}.multipliers": Source(f"{embedding}.layer_multipliers", module=False),
        f"{path}.table_sizes": Source(f"{embedding}.ngram_heads_vocab_sizes", module=False),
        f"{path}.offsets": Source(f"{embedding}.ngram_heads_offsets", module=False),
    }
