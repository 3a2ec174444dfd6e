"""The Nemotron 3.5 Lightning family: one op a block: Mamba-2, attention without positions, or experts without a gate.

Reads config.json only; never a weight, a file or a backend.

Slots: `layers.N.mamba.*`, `layers.N.attention.*`, `layers.N.experts.*`, `layers.N.mlp.*`, by what block N is; `mtp.*`
for the draft head, which the 4-bit conversion keeps in a file of its own beside the shards. Norm weights are plain
scales.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families.decoder_fields import (
    MOST_HEAD_DIM,
    MOST_HEADS,
    MOST_KERNEL,
    MOST_LAYERS,
    MOST_MLP,
    Decoder,
    draft_layers,
    experts,
    head_dim,
    heads,
    multiple,
    read_decoder,
)
from tensorfold.domain.families.fields import ConfigError, Fields, shown
from tensorfold.domain.families.formats import Formats, refuse_config
from tensorfold.domain.families.naming import name_weights
from tensorfold.domain.families.nemotron_h_names import NAMES
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
    MODEL_CARD,
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
from tensorfold.domain.families.published import NEMOTRON_H
from tensorfold.domain.families.tensors import SideFile, TensorMap

MODEL_TYPES = ("nemotron_h",)
LICENSE = MODEL_CARD
CONFIG = NEMOTRON_H
FORMATS = Formats(
    "Nemotron 3.5 Lightning",
    "Vontra/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-MLX-4bit",
    {"mlx": ((4,), (64,)), "cuda": ((4,), (64,))},
)
DIALECT = Dialect(
    think_open="<think>",
    think_close="</think>",
    opened_by_prompt=True,
    thinking_flag="enable_thinking",
    thinks=True,
    tool_calls="function_parameters",
)
MTP_FILE = SideFile("mtp-4bit.safetensors", "mtp.")
_KINDS = {"M": "mamba", "*": "attention", "E": "experts", "-": "mlp"}
_WORDS = {
    "mamba": "M",
    "linear_attention": "M",
    "conv": "M",
    "attention": "*",
    "full_attention": "*",
    "moe": "E",
    "mlp": "-",
}
_MTP_PATTERN = "*E"


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The decoder a config.json describes. Raises ConfigError with the field, its value and its limit."""
    eps = Fields(config).spelled("layer_norm_epsilon", "norm_eps")
    decoder = read_decoder(config, MODEL_TYPES, eps=eps)
    fields, norm = decoder.fields, decoder.norm
    pattern = _pattern(fields, "hybrid_override_pattern", "layers_block_type", "layer_types")
    drafts = draft_layers(fields, "num_nextn_predict_layers")
    ops = {letter: _block(letter, decoder) for letter in {*pattern, *(_MTP_PATTERN if drafts else "")}}
    bare = DecoderPlan(
        family="nemotron_h",
        model_type=decoder.model_type,
        width=decoder.width,
        embedding=Embedding(decoder.vocabulary, decoder.width),
        layers=tuple(ops[letter] for letter in pattern),
        readout=Readout("norm", norm),
        head=Head(decoder.vocabulary, decoder.tied),
        context=decoder.context,
        activation=decoder.activation,
        tensors=TensorMap({}),
        stop_ids=decoder.stop_ids,
        dialect=DIALECT,
        mtp=_mtp(fields, ops, len(pattern), norm) if drafts else None,
        license=LICENSE,
    )
    bits, groups = FORMATS.layouts["mlx"]
    table = TensorMap(
        name_weights(plan_weights(bare), NAMES),
        ignored=() if drafts else ("mtp.*",),
        bits=bits,
        groups=groups,
        together=("mtp.",),
        side_files=(MTP_FILE,) if drafts else (),
    )
    return replace(bare, tensors=table)


def refuse(config: Mapping[str, Any], backend: str) -> str | None:
    """Why a backend cannot serve a config, as one sentence that names the fix; None when it can."""
    return refuse_config(FORMATS, plan, config, backend)


def _pattern(fields: Fields, letters: str, *lists: str) -> str:
    """What each block is, one letter each; letters count where a config has words too."""
    name = fields.spelled(letters, *lists)
    value = fields.values.get(name)
    known = tuple(_KINDS) if name == letters else (*_WORDS, *_KINDS)
    if not isinstance(value, list | str):
        raise fields.refusal(name, "a text or list that says what each block is")
    if not 1 <= len(value) <= MOST_LAYERS:
        raise fields.refusal(name, f"of 1 to {MOST_LAYERS:,} blocks")
    for index, kind in enumerate(value):
        if not isinstance(kind, str) or kind not in known:
            raise ConfigError(f"{fields.place} gives {name}[{index}] as {shown(kind)}; known are {', '.join(known)}.")
    return "".join(_WORDS.get(kind, kind) for kind in value)


def _block(letter: str, decoder: Decoder) -> Layer:
    fields = decoder.fields
    for name in ("attention_bias", "mlp_bias", "use_bias", "mamba_proj_bias", "residual_in_fp32"):
        fields.only(name, False)
    readers: dict[str, Callable[[Fields, Norm], Op]] = {"M": _mamba, "*": _attention, "E": _experts, "-": _mlp}
    return (Sublayer(_KINDS[letter], readers[letter](fields, decoder.norm), pre_norm=decoder.norm),)


def _mamba(fields: Fields, norm: Norm) -> Mamba2:
    fields.only("mamba_ssm_cache_dtype", "float32")
    fields.word("mamba_hidden_act", ("silu", "swish"), "silu")
    count, width = fields.integer("mamba_num_heads", 1, MOST_HEADS), fields.integer("mamba_head_dim", 1, MOST_HEAD_DIM)
    groups, state = fields.integer("n_groups", 1, MOST_HEADS), fields.integer("ssm_state_size", 1, MOST_HEAD_DIM)
    multiple(fields, "mamba_num_heads", count, groups, "n_groups")
    kernel = fields.integer("conv_kernel", 2, MOST_KERNEL)
    return Mamba2(
        heads=count,
        head_dim=width,
        state=state,
        groups=groups,
        conv=ShortConv(count * width + 2 * groups * state, kernel, bias=fields.flag("use_conv_bias", True)),
        norm=replace(norm, groups=groups),
        step_limit=_step_limit(fields),
    )


def _step_limit(fields: Fields) -> tuple[float, float] | None:
    """The clamp of time steps; from 0 to infinity, as no clamp is written, is none."""
    value = fields.values.get("time_step_limit")
    if value is None:
        return None
    wanted = "a list of two numbers, the lower first"
    if not isinstance(value, list) or len(value) != 2:
        raise fields.refusal("time_step_limit", wanted)
    low, high = (float("inf") if entry == {"__float__": "Infinity"} else entry for entry in value)
    for entry in (low, high):
        if isinstance(entry, bool) or not isinstance(entry, int | float) or not 0 <= entry <= float("inf"):
            raise fields.refusal("time_step_limit", wanted)
    if not low < high:
        raise fields.refusal("time_step_limit", wanted)
    return None if low == 0 and high == float("inf") else (float(min(low, 1e30)), float(min(high, 1e30)))


def _attention(fields: Fields, norm: Norm) -> Attention:
    if fields.has("sliding_window"):
        raise fields.refusal("sliding_window", "null in this family")
    queries, keys = heads(fields)
    width = head_dim(fields)
    return Attention(heads=queries, kv_heads=keys, head_dim=width, scale=width**-0.5)


def _mlp(fields: Fields, norm: Norm) -> FeedForward:
    fields.only("mlp_hidden_act", "relu2")
    return FeedForward(fields.integer("intermediate_size", 1, MOST_MLP))


def _experts(fields: Fields, norm: Norm) -> MixtureOfExperts:
    fields.only("mlp_hidden_act", "relu2")
    for name in ("n_group", "topk_group"):
        fields.only(name, 1)
    count, chosen = experts(fields, "n_routed_experts", "num_experts_per_tok")
    shared = fields.integer("n_shared_experts", 0, 1, 1)
    return MixtureOfExperts(
        Router(
            count,
            chosen,
            "sigmoid",
            normalize=fields.flag("norm_topk_prob", True),
            correction=True,
            scale=fields.number("routed_scaling_factor", 1e-6, 1e6),
        ),
        FeedForward(fields.integer("moe_intermediate_size", 1, MOST_MLP)),
        SharedExpert(FeedForward(fields.integer("moe_shared_expert_intermediate_size", 1, MOST_MLP)))
        if shared
        else None,
        latent=fields.integer("moe_latent_size", 0, MOST_MLP, 0),
    )


def _mtp(fields: Fields, ops: Mapping[str, Layer], count: int, norm: Norm) -> MtpHead:
    names = ("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if any(map(fields.has, names)) and _pattern(fields, *names) != _MTP_PATTERN:
        raise fields.refusal(fields.spelled(*names), "attention, then experts")
    return MtpHead(
        layers=tuple(ops[letter] for letter in _MTP_PATTERN),
        tap=Tap(count, "readout"),
        embedding_norm=norm,
        hidden_norm=norm,
        join="concatenate",
        readout=Readout("norm", norm),
        feedback="readout",
        positions="none",
    )
