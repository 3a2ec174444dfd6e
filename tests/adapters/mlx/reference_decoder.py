"""A tiny Llama in float64, written out plainly over the reference ops: the oracle that needs no other library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families import llama
from tensorfold.domain.families.ops import Attention
from tensorfold.domain.families.rope import inverse_frequencies
from tensorfold.kernels.reference.affine import dequantize
from tensorfold.kernels.reference.attention import attend
from tensorfold.kernels.reference.norm import rms_norm
from tensorfold.kernels.reference.rope import rotate
from tensorfold.kernels.reference.swiglu import gated_silu
from tests.synthetic.llama_checkpoints import TinyLlama
from tests.synthetic.safetensors_file import Stored, as_values

Floats = NDArray[np.float64]


class ReferenceDecoder:
    """Logits of a checkpoint, rows reading the rows that `reads` lists for them."""

    def __init__(self, shape: TinyLlama) -> None:
        self.plan = llama.plan(shape.config())
        self.weights = _values(shape, shape.tensors())

    def logits(self, tokens: Sequence[int], positions: Sequence[int], ancestors: Sequence[Sequence[int]]) -> Floats:
        """[R, V]; `ancestors[r]` are the rows that row r may read, itself the last, as far as its window reaches."""
        rows = self.weights["model.embed_tokens.weight"][list(tokens)]
        at = np.asarray(positions)
        for index, (mixer, mlp) in enumerate(self.plan.layers):
            place = f"model.layers.{index}"
            assert isinstance(mixer.op, Attention) and mixer.pre_norm is not None and mlp.pre_norm is not None
            normed = rms_norm(rows, self.weights[f"{place}.input_layernorm.weight"], mixer.pre_norm.eps)
            rows = rows + self._attention(mixer.op, f"{place}.self_attn", normed, at, ancestors)
            normed = rms_norm(rows, self.weights[f"{place}.post_attention_layernorm.weight"], mlp.pre_norm.eps)
            gate, up = (self._linear(f"{place}.mlp.{name}_proj", normed) for name in ("gate", "up"))
            rows = rows + self._linear(f"{place}.mlp.down_proj", gated_silu(gate, up))
        assert self.plan.readout.norm is not None
        rows = rms_norm(rows, self.weights["model.norm.weight"], self.plan.readout.norm.eps)
        return self._linear("model.embed_tokens" if self.plan.head.tied else "lm_head", rows)

    def _attention(
        self, op: Attention, place: str, rows: Floats, at: NDArray[np.int64], ancestors: Sequence[Sequence[int]]
    ) -> Floats:
        queries, keys, values = (
            self._linear(f"{place}.{name}_proj", rows).reshape(len(rows), -1, op.head_dim) for name in "qkv"
        )
        if op.rope is not None:
            frequencies, rope = inverse_frequencies(op.rope), op.rope
            queries, keys = (
                rotate(heads, at, frequencies, interleaved=rope.interleaved, factor=rope.attention_factor)
                for heads in (queries, keys)
            )
        reads = [
            [row for row in seen if not op.window or at[row] > at[own] - op.window]
            for own, seen in enumerate(ancestors)
        ]
        mixed = attend(queries, keys, values, reads, op.scale)
        return self._linear(f"{place}.o_proj", mixed.reshape(len(rows), -1))

    def _linear(self, module: str, rows: Floats) -> Floats:
        made: Floats = rows @ self.weights[f"{module}.weight"].T
        bias = self.weights.get(f"{module}.bias")
        return made if bias is None else made + bias


def _values(shape: TinyLlama, tensors: Mapping[str, Stored]) -> dict[str, Floats]:
    made = {}
    for name, tensor in tensors.items():
        module = name.rpartition(".")[0]
        if name.endswith((".scales", ".biases")):
            continue
        layout = shape.overrides.get(module, shape.quantization)
        if tensor.dtype == "U32":
            assert layout is not None
            scales, biases = as_values(tensors[f"{module}.scales"]), as_values(tensors[f"{module}.biases"])
            made[name] = dequantize(tensor.values, scales, biases, layout.bits, layout.group)
        else:
            made[name] = as_values(tensor)
    return made
