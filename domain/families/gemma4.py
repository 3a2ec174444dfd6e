"""The Gemma 4 26B-A4B family: sliding and full attention, a dense and a routed branch side by side, a scaled residual.

Reads config.json only; never a weight, a file or a backend. Other Gemma 4 sizes (per-layer embeddings, shared keys, no
experts) are refused by the field that tells them apart.

Slots: `layers.N.attention.*`, `layers.N.feed.{dense,routed}.*`. Full layers have no `v`: their values are the raw keys,
normed. The head is the embedding. Norm weights are plain scales everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families.decoder_fields import (
    MOST_CONTEXT,
    MOST_MLP,
    Decoder,
    experts,
    head_dim,
    heads,
    layer_count,
    read_decoder,
)
from tensorfold.domain.families.fields import ConfigError, Fields
from tensorfold.domain.families.formats import Formats, refuse_config
from tensorfold.domain.families.gemma4_names import decoder_names
from tensorfold.domain.families.naming import name_weights
from tensorfold.domain.families.ops import Attention, MixtureOfExperts, Norm, Rope, Router, SwiGLU
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.plans import (
    MODEL_CARD,
    Branch,
    DecoderPlan,
    Dialect,
    Embedding,
    Head,
    Parallel,
    Readout,
    Sublayer,
)
from tensorfold.domain.families.published import GEMMA4
from tensorfold.domain.families.rope import read_block, read_partial
from tensorfold.domain.families.tensors import TensorMap

MODEL_TYPES = ("gemma4", "gemma4_text")
LICENSE = MODEL_CARD
CONFIG = GEMMA4
FORMATS = Formats(
    "Gemma 4 26B-A4B", "mlx-community/gemma-4-26b-a4b-it-4bit", {"mlx": ((4,), (32, 64))}, router_bits=(8,)
)
DIALECT = Dialect(
    think_open="<|channel>thought\n", think_close="<channel|>", thinking_flag="enable_thinking", tool_calls="gemma4"
)
_LAYER_TYPES = ("sliding_attention", "full_attention")
_PREFIXES = ("model.language_model.", "language_model.model.", "model.", "")
_IGNORED = ("*vision_tower.*", "*audio_tower.*", "*embed_vision.*", "*embed_audio.*", "*lm_head.*")


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The decoder a config.json describes. Raises ConfigError with the field, its value and its limit."""
    decoder = read_decoder(config, MODEL_TYPES, tied=True)
    fields, norm = decoder.fields, decoder.norm
    _check_size(fields)
    full = _full_layers(fields)
    dense, routed = _dense(fields), _routed(decoder)
    branches = Parallel((Branch("dense", dense, norm, norm), Branch("routed", routed, norm, norm)))
    feed = Sublayer("feed", branches, post_norm=norm, scale=True)
    ops = {kind: _attention(fields, kind, full, norm) for kind in set(full)}
    mixers = {kind: Sublayer("attention", op, pre_norm=norm, post_norm=norm) for kind, op in ops.items()}
    bare = DecoderPlan(
        family="gemma4",
        model_type=decoder.model_type,
        width=decoder.width,
        embedding=Embedding(decoder.vocabulary, decoder.width, multiplier=decoder.width**0.5),
        layers=tuple((mixers[kind], feed) for kind in full),
        readout=Readout("norm", norm),
        head=Head(decoder.vocabulary, tied=True, softcap=fields.number("final_logit_softcapping", 0.0, 1e4, 0.0)),
        context=decoder.context,
        activation=decoder.activation,
        tensors=TensorMap({}),
        stop_ids=decoder.stop_ids,
        dialect=DIALECT,
        license=LICENSE,
    )
    bits, groups = FORMATS.layouts["mlx"]
    table = TensorMap(
        name_weights(plan_weights(bare), decoder_names(routed, decoder.width)),
        prefixes=_PREFIXES,
        ignored=_IGNORED,
        bits=bits,
        groups=groups,
        router_bits=FORMATS.router_bits,
    )
    return replace(bare, tensors=table)


def refuse(config: Mapping[str, Any], backend: str) -> str | None:
    """Why a backend cannot serve a config, as one sentence that names the fix; None when it can."""
    return refuse_config(FORMATS, plan, config, backend)


def _check_size(fields: Fields) -> None:
    """Refuse the other Gemma 4 sizes and what text alone never needs."""
    # Left out, these fields mean another size, so they must be there.
    for name, value in (("hidden_size_per_layer_input", 0), ("enable_moe_block", True), ("attention_k_eq_v", True)):
        if not fields.has(name):
            raise fields.refusal(name, f"{str(value).lower()}, as the 26B-A4B has it")
        fields.only(name, value)
    for name, alone in (("num_kv_shared_layers", 0), ("use_double_wide_mlp", False), ("attention_bias", False)):
        fields.only(name, alone)
    fields.only("tie_word_embeddings", True)
    fields.only("hidden_activation", "gelu_pytorch_tanh")
    fields.word("use_bidirectional_attention", ("vision",), "vision")


def _full_layers(fields: Fields) -> tuple[bool, ...]:
    listed = fields.words("layer_types", layer_count(fields), _LAYER_TYPES)
    if listed is None:
        raise fields.refusal("layer_types", "a list that names each layer's attention")
    if listed[-1] != "full_attention":
        # The reference libraries disagree about such a model.
        raise fields.refusal("layer_types", "a list that ends with full_attention")
    return tuple(kind == "full_attention" for kind in listed)


def _attention(fields: Fields, full: bool, layers: tuple[bool, ...], norm: Norm) -> Attention:
    wide = _wide_fields(fields, layers) if full else fields
    queries, keys = heads(wide)
    width = head_dim(wide)
    return Attention(
        heads=queries,
        kv_heads=keys,
        head_dim=width,
        scale=1.0,
        rope=_rope(fields, full, width),
        window=0 if full else fields.integer("sliding_window", 1, MOST_CONTEXT),
        q_norm=norm,
        k_norm=norm,
        v_norm=Norm(norm.eps, weight=False),
        values_from_keys=full,
    )


def _wide_fields(fields: Fields, layers: tuple[bool, ...]) -> Fields:
    """The fields with the full layers' heads, which a config states for all of them or layer by layer."""
    stated = {"num_key_value_heads": "num_global_key_value_heads", "head_dim": "global_head_dim"}
    each = fields.group("per_layer_config")
    if each is None or fields.has("global_head_dim"):
        found = {name: fields.values.get(other) for name, other in stated.items()}
        for name, other in stated.items():
            if found[name] is None:
                raise fields.refusal(other, f"the full layers' {name}")
        return Fields(dict(fields.values) | found, fields.place)
    blocks = [each.group(str(index)) for index, full in enumerate(layers) if full]
    known = [dict(block.values) for block in blocks if block is not None]
    if len(known) != len(blocks) or any(block != known[0] or block.keys() != stated.keys() for block in known):
        raise ConfigError(
            f"{each.place} must give every full layer the same head_dim and num_key_value_heads and nothing else."
        )
    return Fields(dict(fields.values) | known[0], each.place)


def _rope(fields: Fields, full: bool, width: int) -> Rope:
    blocks = fields.group("rope_parameters")
    name = _LAYER_TYPES[full]
    block = None if blocks is None else blocks.group(name)
    if block is None:
        raise (blocks or fields).refusal(name if blocks else "rope_parameters", "an object of rotary settings")
    theta = block.number("rope_theta", 1.001, 1e15)
    if not full:
        return read_block(block, Rope(width, theta))
    block.word("rope_type", ("proportional",))
    turning, _ = read_partial(block, width)
    factor = block.number("factor", 1e-3, 1e6, 1.0)
    return Rope(width, theta, "proportional", factor=factor, rotated=turning, denominator=width)


def _dense(fields: Fields) -> SwiGLU:
    return SwiGLU(fields.integer("intermediate_size", 1, MOST_MLP), "gelu_tanh")


def _routed(decoder: Decoder) -> MixtureOfExperts:
    fields = decoder.fields
    count, chosen = experts(fields, "num_experts", "top_k_experts")
    router = Router(
        count,
        chosen,
        "softmax",
        from_residual=True,
        input_norm=Norm(decoder.norm.eps, weight=False),
        input_factor=decoder.width**-0.5,
        input_scale=True,
        expert_scale=True,
    )
    return MixtureOfExperts(router, SwiGLU(fields.integer("moe_intermediate_size", 1, MOST_MLP), "gelu_tanh"))
