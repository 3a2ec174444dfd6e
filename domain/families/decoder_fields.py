"""The fields every listed decoder's config has, read once: where the text part stands, sizes, norm, window, dtype.

Knows no op. A multimodal config keeps its decoder under `text_config`, a text-only one is flat; both are read the same
way, and what lies outside the decoder is never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.domain.families.fields import ConfigError, Fields
from tensorfold.domain.families.ops import Norm

MOST_LAYERS, MOST_WIDTH, MOST_MLP, MOST_VOCABULARY = 1_000, 131_072, 1_048_576, 4_194_304
MOST_HEADS, MOST_HEAD_DIM, MOST_CONTEXT = 1_024, 1_024, 1 << 31
MOST_EXPERTS, MOST_KERNEL = 4_096, 64
DTYPES = ("bfloat16", "float16", "float32")
_OUTSIDE = ("tie_word_embeddings", "eos_token_id", "dtype", "torch_dtype")
"""Fields of the decoder that some configs keep beside `text_config`; inside it they count more."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """The sizes of a decoder and the reader of its other fields."""

    fields: Fields
    model_type: str
    width: int
    vocabulary: int
    norm: Norm
    context: int
    activation: str
    tied: bool
    stop_ids: frozenset[int]


def read_decoder(
    config: Mapping[str, Any], model_types: Sequence[str], *, eps: str = "rms_norm_eps", tied: bool = False
) -> Decoder:
    """The common fields of a config; `tied` is what counts where it does not say. Raises ConfigError."""
    fields, model_type = text_fields(config, model_types)
    vocabulary = fields.integer("vocab_size", 2, MOST_VOCABULARY)
    return Decoder(
        fields=fields,
        model_type=model_type,
        width=fields.integer("hidden_size", 1, MOST_WIDTH),
        vocabulary=vocabulary,
        norm=Norm(fields.number(eps, 1e-12, 1.0)),
        context=fields.integer("max_position_embeddings", 1, MOST_CONTEXT),
        # transformers 5 writes `dtype`, earlier versions `torch_dtype`.
        activation=fields.word(fields.spelled("dtype", "torch_dtype"), DTYPES, "bfloat16"),
        tied=fields.flag("tie_word_embeddings", tied),
        stop_ids=fields.ids("eos_token_id", vocabulary),
    )


def text_fields(config: Mapping[str, Any], model_types: Sequence[str]) -> tuple[Fields, str]:
    """The reader of the decoder's fields, and the config's own model type."""
    top = Fields(config)
    model_type = top.word("model_type", model_types)
    text = top.group("text_config")
    if text is None:
        return top, model_type
    text.word("model_type", model_types, model_type)
    outside = {name: config[name] for name in _OUTSIDE if config.get(name) is not None}
    own = {name: value for name, value in text.values.items() if value is not None}
    return Fields(outside | own, text.place), model_type


def layer_count(fields: Fields) -> int:
    """How many layers a decoder has."""
    return fields.integer("num_hidden_layers", 1, MOST_LAYERS)


def heads(fields: Fields, name: str = "num_attention_heads", kv_name: str = "num_key_value_heads") -> tuple[int, int]:
    """Query heads and the key heads that divide them."""
    queries = fields.integer(name, 1, MOST_HEADS)
    keys = fields.integer(kv_name, 1, queries)
    if queries % keys:
        raise fields.refusal(kv_name, f"a divisor of {name} ({queries:,})")
    return queries, keys


def head_dim(fields: Fields, name: str = "head_dim", default: int | None = None) -> int:
    """An even width of a head."""
    width = fields.integer(name, 2, MOST_HEAD_DIM, default)
    if width % 2:
        raise fields.refusal(name, "even")
    return width


def experts(fields: Fields, name: str, chosen: str) -> tuple[int, int]:
    """Routed experts, and how many of them a row takes."""
    count = fields.integer(name, 1, MOST_EXPERTS)
    return count, fields.integer(chosen, 1, count)


def draft_layers(fields: Fields, name: str) -> int:
    """Layers of the model's own draft head: none or one."""
    return fields.integer(name, 0, 1, 0)


def multiple(fields: Fields, name: str, value: int, unit: int, of: str) -> None:
    """Refuse a value that is no multiple of another field's."""
    if value % unit:
        raise ConfigError(f"{fields.place} gives {name} as {value:,}; it must be a multiple of {of} ({unit:,}).")
