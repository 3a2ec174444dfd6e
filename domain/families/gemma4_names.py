"""Tensor names of Gemma 4 26B-A4B: experts fused as first published, split in the conversion.

Names only.
"""

from __future__ import annotations

from tensorfold.domain.families.naming import Named, Names
from tensorfold.domain.families.ops import MixtureOfExperts
from tensorfold.domain.families.tensors import Source

_LAYER = "layers.*"
_PLAIN = {
    "attention.pre_norm": "input_layernorm",
    "attention.post_norm": "post_attention_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
    "feed.dense.pre_norm": "pre_feedforward_layernorm",
    "feed.dense.gate": "mlp.gate_proj",
    "feed.dense.up": "mlp.up_proj",
    "feed.dense.down": "mlp.down_proj",
    "feed.dense.post_norm": "post_feedforward_layernorm_1",
    "feed.routed.pre_norm": "pre_feedforward_layernorm_2",
    "feed.routed.router": "router.proj",
    "feed.routed.post_norm": "post_feedforward_layernorm_2",
    "feed.post_norm": "post_feedforward_layernorm",
}
_VALUES = {
    "feed.routed.router.input_scale": "router.scale",
    "feed.routed.router.expert_scale": "router.per_expert_scale",
    "feed.scale": "layer_scalar",
}


def decoder_names(routed: MixtureOfExperts, width: int) -> dict[str, Names]:
    """The whole model's names."""
    inner, fused = routed.expert.width, (routed.router.experts, 2 * routed.expert.width, width)
    return {
        "embedding": "embed_tokens",
        "readout.norm": "norm",
        **{f"{_LAYER}.{slot}": f"{_LAYER}.{name}" for slot, name in _PLAIN.items()},
        **{f"{_LAYER}.{slot}": Source(f"{_LAYER}.{name}", module=False) for slot, name in _VALUES.items()},
        f"{_LAYER}.feed.routed.experts.gate": _expert("gate", fused, (0, inner)),
        f"{_LAYER}.feed.routed.experts.up": _expert("up", fused, (inner, 2 * inner)),
        f"{_LAYER}.feed.routed.experts.down": _expert("down", (), None),
    }


def _expert(part: str, fused: tuple[int, ...], cut: tuple[int, int] | None) -> Named:
    """Experts split as converted, or as first published: gate rows before up rows in one tensor."""
    name = "gate_up_proj" if cut else f"{part}_proj"
    published = Source(f"{_LAYER}.experts.{name}", module=False, stored=fused, cut=cut)
    return Named((f"{_LAYER}.experts.switch_glu.{part}_proj", published))
