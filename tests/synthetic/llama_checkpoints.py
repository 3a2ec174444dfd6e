"""Seeded tiny Llamas in the real file layout: config.json, safetensors in one file or shards, dense or affine.

Weights come from PCG64's uniform doubles alone, so that every numpy builds the same bytes. Shapes are small, forms are
all there: grouped heads, biases, tying, sliding windows, every rotary form and every width of affine codes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.affine import quantize
from tests.synthetic.safetensors_file import Stored, as_stored, write_tensors

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Layout:
    """Affine codes of `bits` in groups of `group`."""

    bits: int
    group: int


@dataclass(frozen=True, slots=True)
class TinyLlama:
    """One checkpoint.

    `quantization` None is dense in `dtype`; `overrides` names modules that are stored otherwise (None: dense).
    `extra` goes into config.json as it is: rotary settings, windows, the model type. `gain` scales the matrices, and
    with them how far logits lie apart.
    """

    seed: int = 1
    vocabulary: int = 64
    width: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 0
    mlp: int = 128
    tied: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    context: int = 256
    dtype: str = "F32"
    quantization: Layout | None = None
    overrides: Mapping[str, Layout | None] = field(default_factory=dict)
    shards: int = 1
    gain: float = 1.7
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dim(self) -> int:
        """Width of a head."""
        return self.head_dim or self.width // self.heads

    def config(self) -> dict[str, Any]:
        """config.json."""
        names = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
        config: dict[str, Any] = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": self.width,
            "intermediate_size": self.mlp,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.dim,
            "max_position_embeddings": self.context,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": self.tied,
            "attention_bias": self.qkv_bias,
            "mlp_bias": self.mlp_bias,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": names[self.dtype],
        }
        if self.quantization is not None:
            config["quantization"] = self._block(self.quantization)
        return config | dict(self.extra)

    def _block(self, default: Layout) -> dict[str, Any]:
        block: dict[str, Any] = {"group_size": default.group, "bits": default.bits, "mode": "affine"}
        for path, layout in self.overrides.items():
            block[path] = False if layout is None else {"group_size": layout.group, "bits": layout.bits}
        return block

    def tensors(self) -> dict[str, Stored]:
        """Every tensor of the checkpoint, in the order of the layers."""
        made: dict[str, Stored] = {}
        generator = np.random.Generator(np.random.PCG64(self.seed))
        for name, shape in self._shapes():
            values = generator.random(shape) * 2.0 - 1.0
            if len(shape) == 1:
                values = values * 0.1 + (0.0 if name.endswith(".bias") else 1.0)
                made[name] = as_stored(values, self.dtype)
            else:
                module = name.removesuffix(".weight")
                made.update(self._matrix(module, values * self.gain / np.sqrt(shape[1])))
        return made

    def _matrix(self, module: str, values: Floats) -> dict[str, Stored]:
        layout = self.overrides.get(module, self.quantization)
        if layout is None:
            return {f"{module}.weight": as_stored(values, self.dtype)}
        words, scales, biases = quantize(values, layout.bits, layout.group)
        return {
            f"{module}.weight": Stored("U32", words),
            f"{module}.scales": as_stored(scales, self.dtype),
            f"{module}.biases": as_stored(biases, self.dtype),
        }

    def _shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        width, rows, kv_rows = self.width, self.heads * self.dim, self.kv_heads * self.dim
        shapes: list[tuple[str, tuple[int, ...]]] = [("model.embed_tokens.weight", (self.vocabulary, width))]

        def linear(module: str, outputs: int, inputs: int, bias: bool) -> None:
            shapes.append((f"{module}.weight", (outputs, inputs)))
            if bias:
                shapes.append((f"{module}.bias", (outputs,)))

        for index in range(self.layers):
            place = f"model.layers.{index}"
            shapes.append((f"{place}.input_layernorm.weight", (width,)))
            for name, outputs in (("q", rows), ("k", kv_rows), ("v", kv_rows)):
                linear(f"{place}.self_attn.{name}_proj", outputs, width, self.qkv_bias)
            linear(f"{place}.self_attn.o_proj", width, rows, self.out_bias)
            shapes.append((f"{place}.post_attention_layernorm.weight", (width,)))
            linear(f"{place}.mlp.gate_proj", self.mlp, width, self.mlp_bias)
            linear(f"{place}.mlp.up_proj", self.mlp, width, self.mlp_bias)
            linear(f"{place}.mlp.down_proj", width, self.mlp, self.mlp_bias)
        shapes.append(("model.norm.weight", (width,)))
        if not self.tied:
            linear("lm_head", self.vocabulary, width, bias=False)
        return shapes

    def write(self, folder: Path) -> Path:
        """Write the checkpoint into `folder`, which is made, and return it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config(), indent=1))
        (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
        write_tensors(folder, self.tensors(), self.shards)
        return folder
