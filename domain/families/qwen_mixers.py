"""The two mixers that the Qwen hybrids share, as data: gated attention and the gated delta net, with their names.

Reads a config's fields; knows no family as a whole. Names stand below the layer's module.
"""

from __future__ import annotations

from typing import Literal

from tensorfold.domain.families.decoder_fields import (
    MOST_HEAD_DIM,
    MOST_HEADS,
    MOST_KERNEL,
    head_dim,
    heads,
    layer_count,
    multiple,
)
from tensorfold.domain.families.fields import Fields
from tensorfold.domain.families.naming import Named, Names
from tensorfold.domain.families.ops import Attention, GatedDelta, Norm, ShortConv
from tensorfold.domain.families.plans import Dialect
from tensorfold.domain.families.rope import read_partial, read_rope
from tensorfold.domain.families.tensors import Centring, Source

PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")
IGNORED = ("model.visual.*", "visual.*", "vision_tower.*", "*.rotary_emb.inv_freq")
DIALECT = Dialect(
    think_open="<think>",
    think_close="</think>",
    opened_by_prompt=True,
    thinking_flag="enable_thinking",
    thinks=True,
    efforts=("low", "medium", "xhigh"),
    tool_calls="function_parameters",
)
_FULL = ("full_attention", "indexed_attention")
_GATES: dict[str, Literal["silu", "sigmoid"]] = {"silu": "silu", "swish": "silu", "sigmoid": "sigmoid"}


def normed(name: str, centring: Centring) -> Named:
    """A norm and how its file says whether it is stored around zero."""
    return Named((name,), centring=centring)


DELTA_NAMES: dict[str, Names] = {
    "qkv": "linear_attn.in_proj_qkv",
    "z": "linear_attn.in_proj_z",
    "a": "linear_attn.in_proj_a",
    "b": "linear_attn.in_proj_b",
    "conv": "linear_attn.conv1d",
    "decay_log": Source("linear_attn.A_log", module=False),
    "step_bias": Source("linear_attn.dt_bias", module=False),
    # The one norm that every publication stores as a plain scale.
    "norm": "linear_attn.norm",
    "out": "linear_attn.out_proj",
}
MLP_NAMES: dict[str, Names] = {"gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}


def attention_names(centring: Centring) -> dict[str, Names]:
    """The attention's tensors, its two norms stored as `centring` says."""
    return {
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "out": "self_attn.o_proj",
        "q_norm": normed("self_attn.q_norm", centring),
        "k_norm": normed("self_attn.k_norm", centring),
    }


def read_attention(fields: Fields, norm: Norm, share: float | None = None) -> Attention:
    """Gated attention with normed heads; `share` of each head turns where the config does not say."""
    fields.only("attention_bias", False)
    fields.only("attn_output_gate", True)
    queries, keys = heads(fields)
    width = head_dim(fields)
    dims, partial = read_partial(fields, width, share)
    return Attention(
        heads=queries,
        kv_heads=keys,
        head_dim=width,
        scale=width**-0.5,
        rope=read_rope(fields, dims, partial=partial, theta=0.0),
        q_norm=norm,
        k_norm=norm,
        output_gate=True,
    )


def read_delta(fields: Fields, norm: Norm, gate: str | None = None) -> GatedDelta:
    """The gated delta net; `gate` is its output gate where the config does not say."""
    fields.only("mamba_ssm_dtype", "float32")
    fields.word("hidden_act", ("silu", "swish"), "silu")
    key_heads = fields.integer("linear_num_key_heads", 1, MOST_HEADS)
    value_heads = fields.integer("linear_num_value_heads", 1, MOST_HEADS)
    multiple(fields, "linear_num_value_heads", value_heads, key_heads, "linear_num_key_heads")
    key_dim = fields.integer("linear_key_head_dim", 1, MOST_HEAD_DIM)
    value_dim = fields.integer("linear_value_head_dim", 1, MOST_HEAD_DIM)
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    return GatedDelta(
        key_heads=key_heads,
        value_heads=value_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        conv=ShortConv(channels, fields.integer("linear_conv_kernel_dim", 2, MOST_KERNEL)),
        norm=norm,
        gate=_GATES[fields.word("output_gate_type", tuple(_GATES), gate)],
    )


def full_layers(fields: Fields) -> tuple[bool, ...]:
    """Of each layer, whether it attends; the others are delta nets."""
    count = layer_count(fields)
    listed = fields.words("layer_types", count, ("linear_attention", *_FULL))
    if listed is not None:
        return tuple(kind in _FULL for kind in listed)
    every = fields.integer("full_attention_interval", 1, count if count > 4 else 4, 4)
    return tuple((layer + 1) % every == 0 for layer in range(count))
