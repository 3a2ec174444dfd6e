"""DFlash2: a drafter of blocks with a checkpoint of its own, which reads taps of the model it drafts for.

Reads config.json only; never a weight, a file or a backend. It has no embedding and no head: both are its target's, so
its width and vocabulary must be the target's too.

Slots: `context`, `context_norm`, `output_norm`, `layers.N.attention.*` and `layers.N.mlp.*` with `mix.*`, and
`selector.*`. Norm weights are plain scales, unlike those of the targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tensorfold.domain.families.decoder_fields import (
    DTYPES,
    MOST_CONTEXT,
    MOST_KERNEL,
    MOST_LAYERS,
    MOST_MLP,
    MOST_VOCABULARY,
    MOST_WIDTH,
    head_dim,
    heads,
    layer_count,
    multiple,
)
from tensorfold.domain.families.fields import ConfigError, Fields, listed
from tensorfold.domain.families.naming import Names, name_weights, placed
from tensorfold.domain.families.ops import Attention, Norm, SwiGLU
from tensorfold.domain.families.plan_weights import drafter_weights
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter, Layer, Sublayer, Tap
from tensorfold.domain.families.published import DFLASH2, DFLASH2_GLM
from tensorfold.domain.families.qwen3_5 import DRAFT_IDS, VOCABULARY
from tensorfold.domain.families.qwen_mixers import MLP_NAMES
from tensorfold.domain.families.rope import read_rope
from tensorfold.domain.families.tensors import Source, TensorMap

ARCHITECTURE = "DFlash2DraftModel"
CONFIG, GLM_CONFIG = DFLASH2, DFLASH2_GLM
_OWN = (
    *("block_size", "mask_token_id", "target_layer_ids", "conv_kernel_size", "conv_group_size"),
    *("selector_rank", "selector_top_k"),
)
_MOST_TAPS, _MOST_BLOCK, _MOST_RANK, _MOST_CANDIDATES = 64, 64, 4_096, 256
_ATTENTION: dict[str, Names] = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.o_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
}
_NAMES: dict[str, Names] = {
    "context": "fc",
    "context_norm": "hidden_norm",
    "output_norm": "norm",
    "selector.projection": "candidate_selector.hidden_projection",
    "selector.predecessor": Source("candidate_selector.predecessor_codebook", module=False),
    "selector.successor": Source("candidate_selector.successor_codebook", module=False),
    "layers.*.attention.pre_norm": "layers.*.input_layernorm",
    **placed("layers.*.attention", "layers.*", _ATTENTION),
    "layers.*.attention.mix.base": Source("layers.*.attention_conv.base_kernel", module=False),
    "layers.*.attention.mix.projection": "layers.*.attention_conv.kernel_projection",
    "layers.*.mlp.pre_norm": "layers.*.post_attention_layernorm",
    **placed("layers.*.mlp", "layers.*", MLP_NAMES),
    "layers.*.mlp.mix.base": Source("layers.*.mlp_conv.base_kernel", module=False),
    "layers.*.mlp.mix.projection": "layers.*.mlp_conv.kernel_projection",
}


def recognises(config: Mapping[str, Any]) -> bool:
    """Whether a config is a DFlash2 drafter's: its model type is a plain decoder's, so its architecture must tell."""
    stated = config.get("architectures")
    return isinstance(stated, list) and ARCHITECTURE in stated


def plan(config: Mapping[str, Any], target: DecoderPlan | None = None) -> DFlashDrafter:
    """The drafter a config.json describes, checked against its target where one is given. Raises ConfigError."""
    fields = Fields(config)
    if not recognises(config):
        raise ConfigError(f"config.json's architectures name no {ARCHITECTURE}; only a DFlash2 drafter can stand here.")
    inner = _own_fields(fields)
    width, vocabulary = fields.integer("hidden_size", 1, MOST_WIDTH), fields.integer("vocab_size", 2, MOST_VOCABULARY)
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 1.0))
    group = inner.integer("conv_group_size", 1, width)
    multiple(fields, "hidden_size", width, group, "conv_group_size")
    attention, count = _attention(fields, norm), layer_count(fields)
    layer: Layer = (
        Sublayer("attention", attention, pre_norm=norm),
        Sublayer("mlp", SwiGLU(fields.integer("intermediate_size", 1, MOST_MLP)), pre_norm=norm),
    )
    bare = DFlashDrafter(
        family="dflash2",
        layers=(layer,) * count,
        taps=_taps(fields, inner, target),
        context_norm=norm,
        output_norm=norm,
        block=inner.integer("block_size", 2, _MOST_BLOCK),
        mask_token=inner.integer("mask_token_id", 0, vocabulary - 1),
        window=attention.window,
        # A config that does not say means causal blocks.
        causal=fields.flag("is_causal", True),
        conv_taps=inner.integer("conv_kernel_size", 1, MOST_KERNEL),
        conv_group=group,
        selector_rank=inner.integer("selector_rank", 1, _MOST_RANK),
        candidates=inner.integer("selector_top_k", 1, min(_MOST_CANDIDATES, vocabulary)),
        width=width,
        vocabulary=vocabulary,
        draft_ids=DRAFT_IDS if vocabulary == VOCABULARY else (),
    )
    if target is not None:
        _check_target(bare, target)
    return replace(bare, tensors=TensorMap(name_weights(drafter_weights(bare), _NAMES)))


def refuse(config: Mapping[str, Any], target: DecoderPlan | None = None) -> str | None:
    """Why a drafter cannot draft for a target, as one sentence that names the fix; None when it can."""
    try:
        plan(config, target)
    except ConfigError as error:
        return error.message
    return None


def _own_fields(fields: Fields) -> Fields:
    """The settings that are DFlash2's own; one that is not known could change what is computed."""
    inner = fields.group("dflash_config")
    if inner is None:
        return fields
    unknown = [name for name in inner.values if name not in _OWN]
    if unknown:
        raise ConfigError(
            f"{inner.place} has fields that are not read here: {listed(unknown)}; take the drafter published for the "
            "model, or start with `--drafter none`."
        )
    return inner


def _attention(fields: Fields, norm: Norm) -> Attention:
    fields.only("attention_bias", False)
    fields.only("use_sliding_window", True)
    fields.word("hidden_act", ("silu", "swish"), "silu")
    fields.word(fields.spelled("dtype", "torch_dtype"), DTYPES, "bfloat16")
    fields.words("layer_types", layer_count(fields), ("sliding_attention",))
    queries, keys = heads(fields)
    width = head_dim(fields)
    return Attention(
        heads=queries,
        kv_heads=keys,
        head_dim=width,
        scale=width**-0.5,
        rope=read_rope(fields, width, theta=0.0),
        window=fields.integer("sliding_window", 2, MOST_CONTEXT),
        q_norm=norm,
        k_norm=norm,
    )


def _taps(fields: Fields, inner: Fields, target: DecoderPlan | None) -> tuple[Tap, ...]:
    """A tap of the target's layer L is read after L + 1 finished layers, as the mean of the streams where there are."""
    layers = fields.integer("num_target_layers", 1, MOST_LAYERS, MOST_LAYERS)
    taps = inner.integers("target_layer_ids", 0, layers - 1, _MOST_TAPS)
    if not taps or any(later <= earlier for earlier, later in pairwise(taps)):
        raise inner.refusal("target_layer_ids", "a rising list of the target's layers")
    if target is not None and taps[-1] >= len(target.layers):
        raise ConfigError(
            f"The drafter reads layer {taps[-1]} of its target (target_layer_ids), which has {len(target.layers)} "
            "layers: take the drafter published for this model, or start with `--drafter none`."
        )
    streams = 1 if target is None else target.streams
    return tuple(Tap(index + 1, "stream_mean" if streams > 1 else "residual") for index in taps)


def _check_target(drafter: DFlashDrafter, target: DecoderPlan) -> None:
    found = {"hidden_size": (drafter.width, target.width)}
    found["vocab_size"] = (drafter.vocabulary, target.embedding.vocabulary)
    for name, (own, wanted) in found.items():
        if own != wanted:
            raise ConfigError(
                f"The drafter's {name} is {own:,} and the model's {wanted:,}: take the drafter published for this "
                "model, or start with `--drafter none`."
            )
