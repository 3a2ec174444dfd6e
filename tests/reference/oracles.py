"""Logits of a checkpoint by transformers 5.23.0 and mlx-lm 0.32.2, in float32: what every engine is held against.

    logits("gemma4", folder)  ->  {"transformers": [T, V], "mlx_lm": [T, V]}

Neither library is a dependency; both are imported when asked. transformers gets checkpoints it cannot read (affine
codes, conversions) as dense twins; mlx-lm gets the conversion as it is, scales widened to float32.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.reference.other_checkpoints import dense_twin
from tests.reference.slot_reader import SlotReader
from tests.synthetic.plan_checkpoints import PLANS
from tests.synthetic.tiny_configs import text_part

Logits = NDArray[np.float32]
WANTED = {"mlx_lm": ("mlx-lm", "0.32.2"), "transformers": ("transformers", "5.23.0")}
TOKENS = 72
_TEXT_CLASSES = {
    "qwen3_5": ("Qwen3_5TextConfig", "Qwen3_5ForCausalLM"),
    "qwen4_exp": ("Qwen4ExpTextConfig", "Qwen4ExpForCausalLM"),
    "nemotron_h": ("NemotronHConfig", "NemotronHForCausalLM"),
    "gemma4": ("Gemma4TextConfig", "Gemma4ForCausalLM"),
}
_MLX_FAMILIES = ("qwen3_5", "nemotron_h", "gemma4")
# Step sizes are cut below at time_step_min by transformers' many-row path alone, which no published engine does.
_CONFIG_THERE: Mapping[str, Mapping[str, Any]] = {"nemotron_h": {"time_step_min": 0.0}}
_NO_VISION = {
    "depth": 1,
    "hidden_size": 32,
    "num_heads": 2,
    "intermediate_size": 32,
    "out_hidden_size": 64,
    "projection_intermediate_size": 32,
}


def lacking() -> str | None:
    """Why the oracles cannot run here, None when they can."""
    for package, version in WANTED.values():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            return f"{package} is not installed: pip install {package}=={version} torch"
        if found != version:
            return f"{package} {found} is installed, the comparison is with {version}"
    return None


def tokens(vocabulary: int = 259, count: int = TOKENS) -> list[int]:
    """The ids that are fed: all over the vocabulary, with a stop token in the middle of words now and then."""
    drawn = np.random.Generator(np.random.PCG64(71)).random(count)
    ids = (3 + drawn * (vocabulary - 3)).astype(int).tolist()
    return [2 if at % 31 == 9 else int(token) for at, token in enumerate(ids)]


def logits(family: str, folder: Path, fed: Sequence[int] | None = None) -> dict[str, Logits]:
    """Logits [T, V] of a checkpoint folder by every library that has its family and can read it."""
    ids = tokens() if fed is None else fed
    made = {"transformers": by_transformers(family, folder, ids)}
    if family in _MLX_FAMILIES and _is_conversion(folder, family):
        made["mlx_lm"] = by_mlx_lm(folder, ids)
    return made


def by_transformers(family: str, folder: Path, fed: Sequence[int]) -> Logits:
    """transformers' logits [T, V] of a checkpoint, or of its dense twin in the original layout."""
    torch = importlib.import_module("torch")
    with tempfile.TemporaryDirectory() as scratch:
        config = config_of(folder)
        plain = not _is_conversion(folder, family) and "quantization" not in config
        there = folder if plain else dense_twin(folder, config, Path(scratch) / "twin")
        model = load_there(family, there)
    with torch.no_grad():
        made: Logits = model(input_ids=torch.tensor(list(fed))[None]).logits[0].numpy()
    return made


def by_mlx_lm(folder: Path, fed: Sequence[int]) -> Logits:
    """mlx-lm's logits [T, V] of a conversion, its weights and scales widened to float32."""
    mx = importlib.import_module("mlx.core")
    tree_map = importlib.import_module("mlx.utils").tree_map
    with tempfile.TemporaryDirectory() as scratch:
        there = Path(shutil.copytree(folder, Path(scratch) / "copy"))
        config = config_of(there)
        # Its Gemma wrapper takes the vocabulary from the outer config.
        outer = {"vocab_size": text_part(config)["vocab_size"]}
        (there / "config.json").write_text(json.dumps(outer | config))
        model, _ = importlib.import_module("mlx_lm.utils").load_model(there)

    def widened(value: Any) -> Any:
        return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value

    model.update(tree_map(widened, model.parameters()))
    return np.array(model(mx.array(list(fed))[None])[0])


def load_there(family: str, folder: Path) -> Any:
    """transformers' model of a dense checkpoint in the original layout, float32. Raises ValueError for lost tensors."""
    torch, library = importlib.import_module("torch"), importlib.import_module("transformers")
    library.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    text = text_part(config_of(folder)) | dict(_CONFIG_THERE.get(family, {}))
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager", "output_loading_info": True}
    if family == "glm5_next":
        config = library.Glm5NextConfig(text_config=text, vision_config=_NO_VISION)
        loader = library.Glm5NextForConditionalGeneration
    else:
        names = _TEXT_CLASSES[family]
        config, loader = getattr(library, names[0])(**text), getattr(library, names[1])
    if family == "gemma4":
        options["key_mapping"] = {r"^model\.language_model": "model"}
    model, told = loader.from_pretrained(folder, config=config, **options)
    lost = [name for name in told["missing_keys"] if "visual" not in name and "vision" not in name]
    if lost or told["mismatched_keys"]:
        raise ValueError(f"transformers found no tensor for {lost[:4]} {list(told['mismatched_keys'])[:4]}")
    return model.eval()


def _is_conversion(folder: Path, family: str) -> bool:
    """Whether a folder is laid out as MLX conversions are."""
    bound = SlotReader.of(folder, PLANS[family](config_of(folder)).tensors).bound
    swapped = any(found.swapped for found in bound.values() if found.slot.weight.rule == "conv")
    return swapped or any(found.module.weight.startswith("language_model.") for found in bound.values())


def config_of(folder: Path) -> dict[str, Any]:
    """A folder's config.json."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config
