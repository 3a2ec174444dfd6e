"""Sizes and constants of a llama-architecture GGUF, read from its metadata; whatever is not understood is refused.

A key that this module does not know could change the arithmetic, so it is refused by name rather than skipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensorfold.adapters.packages.gguf_fields import Value
from tensorfold.application.ports.checkpoints import RefusedError

ARCHITECTURE = "llama"
_READ = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "rope.freq_base", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor",
}  # fmt: skip
_NEUTRAL = {"expert_count": 0, "expert_used_count": 0, "attention.sliding_window": 0, "attention.causal": True}
_MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """What config.json says of the decoder. `linear_factor` 1 is no rotary scaling."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    theta: float
    eps: float
    linear_factor: float


def read_shape(metadata: Mapping[str, Value], vocabulary: int, label: str) -> LlamaShape:
    """The shape in `metadata`; `vocabulary` is the embedding's row count. Raises RefusedError."""
    fields = _Metadata(metadata, label)
    architecture = metadata.get("general.architecture")
    if architecture != ARCHITECTURE:
        raise fields.refusal(f"has the architecture {architecture!r:.60}; only {ARCHITECTURE} is converted")
    fields.refuse_unknown()
    width = fields.count("embedding_length", most=1 << 17)
    heads = fields.count("attention.head_count", most=1 << 10)
    kv_heads = fields.count("attention.head_count_kv", most=heads, default=heads)
    head_dim = fields.count("attention.key_length", most=1 << 10, default=width // heads)
    rotated = fields.count("rope.dimension_count", most=1 << 10, default=head_dim)
    value_dim = fields.count("attention.value_length", most=1 << 10, default=head_dim)
    if heads % kv_heads or head_dim % 2 or not head_dim == rotated == value_dim:
        raise fields.refusal(
            f"has {heads} heads over {kv_heads} of {head_dim} wide keys, {value_dim} wide values and {rotated} rotated "
            f"dimensions; converted are heads in whole groups whose dimensions are even, alike and all rotated"
        )
    if fields.count("vocab_size", most=_MOST, default=vocabulary) != vocabulary:
        raise fields.refusal(f"states another vocab_size than the {vocabulary} rows of its embedding")
    return LlamaShape(
        layers=fields.count("block_count", most=1000),
        width=width,
        inner=fields.count("feed_forward_length", most=1 << 20),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=vocabulary,
        context=fields.count("context_length", most=_MOST),
        theta=fields.number("rope.freq_base", default=10_000.0),
        eps=fields.number("attention.layer_norm_rms_epsilon"),
        linear_factor=fields.linear_factor(),
    )


class _Metadata:
    """Typed access to the `llama.` keys."""

    def __init__(self, metadata: Mapping[str, Value], label: str) -> None:
        self._values = {
            key.removeprefix(f"{ARCHITECTURE}."): value
            for key, value in metadata.items()
            if key.startswith(f"{ARCHITECTURE}.")
        }
        self._label = label

    def refusal(self, what: str) -> RefusedError:
        return RefusedError(f"{self._label} {what}.")

    def refuse_unknown(self) -> None:
        for key, value in self._values.items():
            if key not in _READ and (key not in _NEUTRAL or value != _NEUTRAL[key]):
                raise self.refusal(f"sets {ARCHITECTURE}.{key}, which is not converted")

    def count(self, key: str, most: int, default: int | None = None) -> int:
        value = self._values.get(key, default)
        if type(value) is not int or not 1 <= value <= most:
            raise self.refusal(f"has no {ARCHITECTURE}.{key} from 1 to {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._values.get(key, default)
        if type(value) not in (int, float) or not isinstance(value, int | float):
            raise self.refusal(f"has no number {ARCHITECTURE}.{key}")
        if not (math.isfinite(value) and value > 0):
            raise self.refusal(f"has {ARCHITECTURE}.{key} = {value}, which is not above 0")
        # Stored in float32: the shortest text of that float is the number its author wrote.
        return float(str(np.float32(value)))

    def linear_factor(self) -> float:
        kind = self._values.get("rope.scaling.type", "none")
        if kind == "none":
            return 1.0
        if kind != "linear":
            raise self.refusal(f"scales rotary positions by {kind!r:.40}; only none and linear are converted")
        return self.number("rope.scaling.factor")
