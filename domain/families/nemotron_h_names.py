"""Tensor names of Nemotron 3.5 Lightning: experts one by one as first published, stacked in the 4-bit conversion.

Names only. The draft head's stand in a side file without their `mtp.`; its reader puts it back.
"""

from __future__ import annotations

from tensorfold.domain.families.naming import Named, Names, placed
from tensorfold.domain.families.tensors import Source

_MIXERS: dict[str, dict[str, Names]] = {
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
    "mlp": {"up": "up_proj", "down": "down_proj"},
    "experts": {
        # One unit in the last place of a router changes experts, so it is never quantized.
        "router": Named(("gate",), rule="plain"),
        "router.correction": Source("gate.e_score_correction_bias", module=False),
        "experts.up": Named(("switch_mlp.fc1", "experts.{e}.up_proj")),
        "experts.down": Named(("switch_mlp.fc2", "experts.{e}.down_proj")),
        "shared.up": "shared_experts.up_proj",
        "shared.down": "shared_experts.down_proj",
        "latent_down": "fc1_latent_proj",
        "latent_up": "fc2_latent_proj",
    },
}


def _blocks(path: str, module: str) -> dict[str, Names]:
    table: dict[str, Names] = {}
    for kind, names in _MIXERS.items():
        table[f"{path}.{kind}.pre_norm"] = f"{module}.norm"
        table |= placed(f"{path}.{kind}", f"{module}.mixer", names)
    return table


NAMES: dict[str, Names] = {
    "embedding": "backbone.embeddings",
    "readout.norm": "backbone.norm_f",
    "head": "lm_head",
    **_blocks("layers.*", "backbone.layers.*"),
    "mtp.embedding_norm": "mtp.layers.0.enorm",
    "mtp.hidden_norm": "mtp.layers.0.hnorm",
    "mtp.join": "mtp.layers.0.eh_proj",
    "mtp.readout.norm": "mtp.layers.1.final_layernorm",
    **_blocks("mtp.layers.*", "mtp.layers.*"),
}
