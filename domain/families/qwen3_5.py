"""The Qwen3.8-27B family: gated delta nets with a gated attention in every fourth layer, a gated MLP, an MTP head.

Reads config.json only; never a weight, a file or a backend. Vision parts of a multimodal config are not looked at.

Slots: `layers.N.delta.*` or `layers.N.attention.*`, `layers.N.mlp.*`, `mtp.*` for the draft head, which shares
embedding and head. Norms are stored around zero in original files and around one in conversions, except the
delta net's own, which never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families.decoder_fields import MOST_MLP, draft_layers, read_decoder
from tensorfold.domain.families.formats import Formats, refuse_config
from tensorfold.domain.families.naming import Names, name_weights, placed
from tensorfold.domain.families.ops import SwiGLU
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.plans import (
    MODEL_CARD,
    DecoderPlan,
    Embedding,
    Head,
    Layer,
    MtpHead,
    Readout,
    Sublayer,
    Tap,
)
from tensorfold.domain.families.published import QWEN3_5
from tensorfold.domain.families.qwen_mixers import (
    DELTA_NAMES,
    DIALECT,
    IGNORED,
    MLP_NAMES,
    PREFIXES,
    attention_names,
    full_layers,
    normed,
    read_attention,
    read_delta,
)
from tensorfold.domain.families.storage import AFFINE_BITS, AFFINE_GROUPS
from tensorfold.domain.families.tensors import Centring, TensorMap

MODEL_TYPES = ("qwen3_5", "qwen3_5_text")
LICENSE = MODEL_CARD
CONFIG = QWEN3_5
FORMATS = Formats(
    "Qwen3.8-27B",
    "Vontra/Qwen3.8-27B-MLX-4bit",
    {"mlx": (AFFINE_BITS, AFFINE_GROUPS), "cuda": ((4,), (64,))},
    plain=("mlx",),
)
VOCABULARY, DRAFT_IDS = 248_320, ((0, 98_304), (248_032, 248_320))
"""Ids worth drafting: 99.98% of what sessions commit, at two fifths of the head's rows. The last are control tokens."""
_CHAIN_ROWS = 128
_CENTRED: Centring = "by_conv_layout"
_ATTENTION = attention_names(_CENTRED)
_NAMES: dict[str, Names] = {
    "embedding": "embed_tokens",
    "readout.norm": normed("norm", _CENTRED),
    "head": "lm_head",
    "layers.*.delta.pre_norm": normed("layers.*.input_layernorm", _CENTRED),
    **placed("layers.*.delta", "layers.*", DELTA_NAMES),
    "layers.*.attention.pre_norm": normed("layers.*.input_layernorm", _CENTRED),
    **placed("layers.*.attention", "layers.*", _ATTENTION),
    "layers.*.mlp.pre_norm": normed("layers.*.post_attention_layernorm", _CENTRED),
    **placed("layers.*.mlp", "layers.*", MLP_NAMES),
    "mtp.embedding_norm": normed("mtp.pre_fc_norm_embedding", "always"),
    "mtp.hidden_norm": normed("mtp.pre_fc_norm_hidden", "always"),
    "mtp.join": "mtp.fc",
    "mtp.readout.norm": normed("mtp.norm", "always"),
    "mtp.layers.*.attention.pre_norm": normed("mtp.layers.*.input_layernorm", "always"),
    **placed("mtp.layers.*.attention", "mtp.layers.*", _ATTENTION, always=True),
    "mtp.layers.*.mlp.pre_norm": normed("mtp.layers.*.post_attention_layernorm", "always"),
    **placed("mtp.layers.*.mlp", "mtp.layers.*", MLP_NAMES),
}


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The decoder a config.json describes. Raises ConfigError with the field, its value and its limit."""
    decoder = read_decoder(config, MODEL_TYPES)
    fields, norm, width, vocabulary = decoder.fields, decoder.norm, decoder.width, decoder.vocabulary
    attends = full_layers(fields)
    mlp = Sublayer("mlp", SwiGLU(fields.integer("intermediate_size", 1, MOST_MLP)), pre_norm=norm)
    # Published configs name their gate, but the reference implementation never reads it: SiLU it is.
    fields.word("output_gate_type", ("silu", "swish"), "silu")
    full: Layer = (Sublayer("attention", read_attention(fields, norm, 0.25), pre_norm=norm), mlp)
    linear: Layer = (Sublayer("delta", read_delta(fields, norm, "silu"), pre_norm=norm), mlp)
    fields.only("mtp_use_dedicated_embeddings", False)
    drafts = draft_layers(fields, "mtp_num_hidden_layers")
    bare = DecoderPlan(
        family="qwen3_5",
        model_type=decoder.model_type,
        width=width,
        embedding=Embedding(vocabulary, width),
        layers=tuple(full if attending else linear for attending in attends),
        readout=Readout("norm", norm),
        head=Head(vocabulary, decoder.tied),
        context=decoder.context,
        activation=decoder.activation,
        tensors=TensorMap({}),
        stop_ids=decoder.stop_ids,
        dialect=DIALECT,
        mtp=MtpHead(
            layers=(full,) * drafts,
            tap=Tap(len(attends), "readout"),
            embedding_norm=norm,
            hidden_norm=norm,
            join="concatenate",
            readout=Readout("norm", norm),
            feedback="readout",
            positions="entry",
            draft_ids=DRAFT_IDS if vocabulary == VOCABULARY else (),
        )
        if drafts
        else None,
        max_window=_CHAIN_ROWS,
        license=LICENSE,
    )
    # A tied checkpoint may repeat the embedding as its head.
    ignored = (*IGNORED, "*lm_head.*") if decoder.tied else IGNORED
    slots = name_weights(plan_weights(bare), _NAMES)
    # A head that config.json does not state is left alone: conversions strip it and keep the field, or the reverse.
    ignored = ignored if drafts else (*ignored, "*mtp.*")
    return replace(bare, tensors=TensorMap(slots, prefixes=PREFIXES, ignored=ignored, together=("mtp.",)))


def refuse(config: Mapping[str, Any], backend: str) -> str | None:
    """Why a backend cannot serve a config, as one sentence that names the fix; None when it can."""
    return refuse_config(FORMATS, plan, config, backend)
