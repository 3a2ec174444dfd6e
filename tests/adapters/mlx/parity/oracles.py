"""The same checkpoints through mlx-lm and transformers, in float32: logits of every position.

Neither library is a dependency; both are imported when asked. What a library cannot express is given to it as an equal
model: affine weights as the values they stand for, interleaved rotary pairs as half-split ones, absent biases as zeros.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.affine import dequantize
from tests.adapters.mlx.parity.cases import Case
from tests.synthetic.llama_checkpoints import TinyLlama
from tests.synthetic.safetensors_file import Stored, as_stored, as_values, write_tensors

Logits = NDArray[np.float32]
WANTED = {"mlx_lm": ("mlx-lm", "0.32.2"), "transformers": ("transformers", "5.23.0")}


def lacking() -> str | None:
    """Why the oracles cannot run here, None when they can."""
    for module, (package, version) in WANTED.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return f"{package} is not installed: pip install {package}=={version} torch"
        if found != version:
            return f"{package} {found} is installed, the comparison is with {version}"
        importlib.import_module(module)
    return None


def by_mlx_lm(case: Case, folder: Path) -> Logits | None:
    """mlx-lm's logits [T, V], weights and scales cast to float32."""
    if case.mlx_lm is None:
        return None
    import mlx.core as mx
    from mlx.utils import tree_map

    load_model = importlib.import_module("mlx_lm.utils").load_model

    case.shape.write(folder)
    _change(folder, case.mlx_lm)
    model, _ = load_model(folder)

    def widened(value: mx.array) -> mx.array:
        return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value

    model.update(tree_map(widened, model.parameters()))
    return np.array(model(mx.array(case.tokens())[None])[0])


def by_transformers(case: Case, folder: Path) -> Logits | None:
    """transformers' logits [T, V] of the dense twin in float32."""
    if case.transformers is None:
        return None
    torch = importlib.import_module("torch")
    models = importlib.import_module("transformers").AutoModelForCausalLM

    shape = case.shape
    folder.mkdir(parents=True, exist_ok=True)
    tensors = _dense(shape)
    config = {**shape.config(), **case.transformers, "torch_dtype": "float32"}
    config.pop("quantization", None)
    if config.pop("rope_traditional", False):
        tensors = _half_split(shape, tensors)
    if config["model_type"] == "qwen2" and not shape.qkv_bias:
        tensors |= _zero_biases(shape)
    (folder / "config.json").write_text(json.dumps(config))
    write_tensors(folder, tensors)
    model = models.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        made: Logits = model(torch.tensor(case.tokens())[None]).logits[0].numpy()
    return made


ORACLES: Mapping[str, Callable[[Case, Path], Logits | None]] = {"mlx_lm": by_mlx_lm, "transformers": by_transformers}


def _change(folder: Path, fields: Mapping[str, Any]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | dict(fields)))


def _dense(shape: TinyLlama) -> dict[str, Stored]:
    """Every tensor in float32: affine modules as scale * code + bias."""
    stored = shape.tensors()
    dense: dict[str, Stored] = {}
    for name, tensor in stored.items():
        module = name.rpartition(".")[0]
        if name.endswith((".scales", ".biases")):
            continue
        if name.endswith(".weight") and f"{module}.scales" in stored:
            scales, biases = as_values(stored[f"{module}.scales"]), as_values(stored[f"{module}.biases"])
            layout = shape.overrides.get(module, shape.quantization)
            assert layout is not None
            values = dequantize(tensor.values, scales, biases, layout.bits, layout.group)
        else:
            values = as_values(tensor)
        dense[name] = as_stored(values, "F32")
    return dense


def _half_split(shape: TinyLlama, tensors: Mapping[str, Stored]) -> dict[str, Stored]:
    """Reorder the rows of each query and key head from (2j, 2j + 1) pairs to (j, j + d / 2)."""
    order = np.concatenate([np.arange(0, shape.dim, 2), np.arange(1, shape.dim, 2)])
    turned = dict(tensors)
    for name, tensor in tensors.items():
        if ".q_proj." in name or ".k_proj." in name:
            heads = tensor.values.reshape(-1, shape.dim, *tensor.values.shape[1:])
            turned[name] = Stored(tensor.dtype, heads[:, order].reshape(tensor.values.shape))
    return turned


def _zero_biases(shape: TinyLlama) -> dict[str, Stored]:
    rows = {"q": shape.heads * shape.dim, "k": shape.kv_heads * shape.dim, "v": shape.kv_heads * shape.dim}
    return {
        f"model.layers.{layer}.self_attn.{name}_proj.bias": as_stored(np.zeros(count), "F32")
        for layer in range(shape.layers)
        for name, count in rows.items()
    }
