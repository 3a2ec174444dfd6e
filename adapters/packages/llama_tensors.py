"""Which GGUF tensor of a llama becomes which checkpoint tensor, with the shape each must have.

Query and key projections are stored with the rows of each head interleaved; `head_dim` of a target says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tensorfold.adapters.packages.gguf_types import GgufTensor
from tensorfold.adapters.packages.llama_shape import LlamaShape
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.fields import listed

EMBEDDING = "token_embd.weight"
OWN_HEAD = "output.weight"


@dataclass(frozen=True, slots=True)
class Target:
    """A tensor to write: its name, logical shape, and the head size when its rows are interleaved (else 0)."""

    name: str
    shape: tuple[int, ...]
    interleaved: int = 0


@dataclass(frozen=True, slots=True)
class LlamaLayout:
    """Targets by the name of their source, and what config.json must say of them."""

    targets: Mapping[str, Target]
    tied: bool
    attention_bias: bool
    mlp_bias: bool


def lay_out(shape: LlamaShape, tensors: Mapping[str, GgufTensor], label: str) -> LlamaLayout:
    """The layout of a file. Raises RefusedError for tensors that are missing, misshapen or not converted."""
    tied = OWN_HEAD not in tensors
    attention_bias, mlp_bias = "blk.0.attn_q.bias" in tensors, "blk.0.ffn_gate.bias" in tensors
    targets = {
        EMBEDDING: Target("model.embed_tokens.weight", (shape.vocabulary, shape.width)),
        "output_norm.weight": Target("model.norm.weight", (shape.width,)),
    }
    if not tied:
        targets[OWN_HEAD] = Target("lm_head.weight", (shape.vocabulary, shape.width))
    for layer in range(shape.layers):
        targets.update(_layer(shape, layer, attention_bias, mlp_bias))
    _require_same(targets, tensors, label)
    return LlamaLayout(targets, tied, attention_bias, mlp_bias)


def _layer(shape: LlamaShape, layer: int, attention_bias: bool, mlp_bias: bool) -> Iterator[tuple[str, Target]]:
    source, target = f"blk.{layer}", f"model.layers.{layer}"
    for norm, name in (("attn_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm")):
        yield f"{source}.{norm}.weight", Target(f"{target}.{name}.weight", (shape.width,))
    queries, keys, head = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.head_dim
    modules = (
        ("attn_q", "self_attn.q_proj", queries, shape.width, head, attention_bias),
        ("attn_k", "self_attn.k_proj", keys, shape.width, head, attention_bias),
        ("attn_v", "self_attn.v_proj", keys, shape.width, 0, attention_bias),
        ("attn_output", "self_attn.o_proj", shape.width, queries, 0, attention_bias),
        ("ffn_gate", "mlp.gate_proj", shape.inner, shape.width, 0, mlp_bias),
        ("ffn_up", "mlp.up_proj", shape.inner, shape.width, 0, mlp_bias),
        ("ffn_down", "mlp.down_proj", shape.width, shape.inner, 0, mlp_bias),
    )
    for stem, name, rows, width, interleaved, bias in modules:
        yield f"{source}.{stem}.weight", Target(f"{target}.{name}.weight", (rows, width), interleaved)
        if bias:
            yield f"{source}.{stem}.bias", Target(f"{target}.{name}.bias", (rows,), interleaved)


def _require_same(targets: Mapping[str, Target], tensors: Mapping[str, GgufTensor], label: str) -> None:
    missing = [name for name in targets if name not in tensors]
    if missing:
        raise RefusedError(f"{label} lacks {listed(missing)}.")
    more = [name for name in tensors if name not in targets]
    if more:
        raise RefusedError(f"{label} has tensors that are not converted: {listed(more)}.")
    for name, target in targets.items():
        if tensors[name].shape != target.shape:
            raise RefusedError(
                f"{label} gives {name} the shape {list(tensors[name].shape)} where its metadata asks for "
                f"{list(target.shape)}."
            )
        if len(target.shape) == 1 and tensors[name].type.is_quantized:
            raise RefusedError(
                f"{label} stores the vector {name} as {tensors[name].type.name}, which is not converted."
            )
