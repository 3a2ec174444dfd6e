"""Tensor names of GLM-5.3-Flash in its published layouts: as first published, and as later converted.

Names only. Later conversions join the three convolutions, split the latent's up-projection by heads, stack experts, and
give the draft layer a block of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tensorfold.domain.families.naming import Named, Names, either
from tensorfold.domain.families.ops import KimiDelta, LatentAttention
from tensorfold.domain.families.tensors import Source


def decoder_names(kimi: KimiDelta, latent: LatentAttention, layers: int) -> dict[str, Names]:
    """The whole model's names, its head of drafts included."""
    layer = "layers.*"
    # The head of drafts is the layer after the last one, or a block of its own in later conversions.
    own, block = f"layers.{layers}", "mtp.0.block"
    return {
        "embedding": "embed_tokens",
        "readout.norm": "norm",
        "head": "lm_head",
        **_kimi(f"{layer}.delta", layer, kimi.heads * kimi.head_dim, kimi.conv.kernel),
        **_latent(latent, f"{layer}.attention", layer),
        **_experts(f"{layer}.mlp", layer),
        **{f"{layer}.{s}.pre_norm": f"{layer}.input_layernorm" for s in ("delta", "attention")},
        f"{layer}.mlp.pre_norm": f"{layer}.post_attention_layernorm",
        **_streams(f"{layer}.delta", layer, "attn"),
        **_streams(f"{layer}.attention", layer, "attn"),
        **_streams(f"{layer}.mlp", layer, "ffn"),
        **_merged(_head_layer(latent, own), _head_layer(latent, block)),
        "mtp.embedding_norm": either(f"{own}.enorm", "mtp.0.enorm"),
        "mtp.hidden_norm": either(f"{own}.hnorm", "mtp.0.hnorm"),
        "mtp.join": either(f"{own}.eh_proj", "mtp.0.eh_proj"),
        "mtp.readout.norm": either(f"{own}.shared_head.norm", "mtp.0.norm"),
    }


def _kimi(path: str, module: str, inner: int, kernel: int) -> dict[str, Names]:
    attention, gates = f"{module}.self_attn", f"{module}.self_attn.forget_gate"
    table: dict[str, Names] = {}
    for index, part in enumerate("qkv"):
        rows = (index * inner, (index + 1) * inner)
        joint = Source(f"{attention}.conv1d", stored=(3 * inner, 1, kernel), cut=rows, axis=0)
        table[f"{path}.{part}"] = f"{attention}.{part}_proj"
        table[f"{path}.{part}_conv"] = either(f"{attention}.{part}_conv1d", joint)
    return table | {
        f"{path}.decay_down": either(f"{attention}.f_a_proj", f"{gates}.f_a_proj"),
        f"{path}.decay_up": either(f"{attention}.f_b_proj", f"{gates}.f_b_proj"),
        f"{path}.gate_down": f"{attention}.g_a_proj",
        f"{path}.gate_up": f"{attention}.g_b_proj",
        f"{path}.beta": f"{attention}.b_proj",
        f"{path}.decay_log": either(
            Source(f"{attention}.A_log", module=False),
            Source(f"{gates}.A_log", module=False),
            Source(f"{gates}.A", module=False, takes_log=True),
        ),
        f"{path}.step_bias": either(
            Source(f"{attention}.dt_bias", module=False), Source(f"{gates}.dt_bias", module=False)
        ),
        f"{path}.norm": f"{attention}.o_norm",
        f"{path}.out": f"{attention}.o_proj",
    }


def _latent(op: LatentAttention, path: str, module: str) -> dict[str, Names]:
    attention, indexer = f"{module}.self_attn", f"{module}.self_attn.indexer"
    keys, rows, rank = op.key_dim, op.key_dim + op.value_dim, op.kv_rank
    # In one piece each head's key rows stand before its value rows.
    joint = Source(f"{attention}.kv_b_proj", stored=(op.heads * rows, rank), view=(op.heads, rows, rank))
    return {
        f"{path}.q_down": f"{attention}.q_a_proj",
        f"{path}.q_norm": f"{attention}.q_a_layernorm",
        f"{path}.q_up": f"{attention}.q_b_proj",
        f"{path}.kv_down": f"{attention}.kv_a_proj_with_mqa",
        f"{path}.kv_norm": f"{attention}.kv_a_layernorm",
        f"{path}.key_up": either(replace(joint, cut=(0, keys)), Source(f"{attention}.embed_q", transposed=True)),
        f"{path}.value_up": either(replace(joint, cut=(keys, rows)), f"{attention}.unembed_out"),
        f"{path}.out": f"{attention}.o_proj",
        f"{path}.indexer.q": f"{indexer}.wq_b",
        f"{path}.indexer.k": f"{indexer}.wk",
        f"{path}.indexer.k_norm": f"{indexer}.k_norm",
        f"{path}.indexer.head_weights": f"{indexer}.weights_proj",
        f"{path}.indexer.gate": Source(f"{indexer}.index_kpool_compress_gate", module=False),
        f"{path}.indexer.offsets": Source(f"{indexer}.index_kpool_compress_ape", module=False),
    }


def _experts(path: str, module: str) -> dict[str, Names]:
    mlp = f"{module}.mlp"
    table: dict[str, Names] = {
        # Never quantized: one unit in the last place changes experts.
        f"{path}.router": Named((f"{mlp}.gate",), rule="plain"),
        f"{path}.router.correction": Source(f"{mlp}.gate.e_score_correction_bias", module=False),
    }
    for part in ("gate", "up", "down"):
        table[f"{path}.{part}"] = f"{mlp}.{part}_proj"
        table[f"{path}.shared.{part}"] = f"{mlp}.shared_experts.{part}_proj"
        table[f"{path}.experts.{part}"] = either(f"{mlp}.experts.{{e}}.{part}_proj", f"{mlp}.switch_mlp.{part}_proj")
    return table


def _streams(path: str, module: str, site: str) -> dict[str, Names]:
    return {
        f"{path}.residual.{slot}": either(
            Source(f"{module}.hc_{site}_{name}", module=False), Source(f"{module}.{site}_hc.{name}", module=False)
        )
        for slot, name in {"projection": "fn", "base": "base", "scale": "scale"}.items()
    }


def _head_layer(op: LatentAttention, module: str) -> dict[str, Names]:
    path = "mtp.layers.*"
    return {
        **_latent(op, f"{path}.attention", module),
        **_experts(f"{path}.mlp", module),
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
