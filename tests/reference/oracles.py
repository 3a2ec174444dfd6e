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

from tests.reference.drafter_case import CONTEXTS, DrafterCase
from tests.reference.other_checkpoints import dense_twin, head_alone
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
        config = _config(folder)
        plain = not _is_conversion(folder, family) and "quantization" not in config
        there = folder if plain else dense_twin(folder, config, Path(scratch) / "twin")
        model = _loaded(family, there)
    with torch.no_grad():
        made: Logits = model(input_ids=torch.tensor(list(fed))[None]).logits[0].numpy()
    return made


def by_mlx_lm(folder: Path, fed: Sequence[int]) -> Logits:
    """mlx-lm's logits [T, V] of a conversion, its weights and scales widened to float32."""
    mx = importlib.import_module("mlx.core")
    tree_map = importlib.import_module("mlx.utils").tree_map
    with tempfile.TemporaryDirectory() as scratch:
        there = Path(shutil.copytree(folder, Path(scratch) / "copy"))
        config = _config(there)
        # Its Gemma wrapper takes the vocabulary from the outer config.
        outer = {"vocab_size": text_part(config)["vocab_size"]}
        (there / "config.json").write_text(json.dumps(outer | config))
        model, _ = importlib.import_module("mlx_lm.utils").load_model(there)

    def widened(value: Any) -> Any:
        return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value

    model.update(tree_map(widened, model.parameters()))
    return np.array(model(mx.array(list(fed))[None])[0])


def mtp_logits(family: str, folder: Path, fed: Sequence[int] | None = None) -> Logits:
    """Logits [T - 1, V] of the draft head.

    Rows of transformers' main model are joined here with embeddings and go through transformers' layers.
    """
    torch = importlib.import_module("torch")
    ids = tokens() if fed is None else list(fed)
    config = _config(folder)
    slots = SlotReader.of(folder, PLANS[family](config).tensors)

    def single(path: str) -> Any:
        return torch.tensor(slots[path], dtype=torch.float32)

    with tempfile.TemporaryDirectory() as scratch:
        main = _loaded(family, dense_twin(folder, config, Path(scratch) / "twin"))
        head = _loaded(family, head_alone(folder, config, Path(scratch) / "head")[0])
    eps = text_part(config).get("rms_norm_eps", text_part(config).get("layer_norm_epsilon"))

    def normed(rows: Any, path: str) -> Any:
        return rows * torch.rsqrt((rows * rows).mean(-1, keepdim=True) + eps) * single(path)

    with torch.no_grad():
        hidden = _tapped(family, main, torch.tensor(ids)[None])[0, :-1]
        embedded = single("embedding")[ids[1:]]
        if family == "glm5_next":
            embedded[0] = 0.0
        embedded, hidden = normed(embedded, "mtp.embedding_norm"), normed(hidden, "mtp.hidden_norm")
        if family == "qwen4_exp":
            parts = hidden.reshape(len(ids) - 1, -1, embedded.shape[-1]) @ single("mtp.join_hidden").T
            streams = (parts + (embedded @ single("mtp.join_embedding").T)[:, None]).flatten(1)
            return _with_streams(head, embedded, streams)
        joined = torch.cat([embedded, hidden], -1) @ single("mtp.join").T
        made: Logits = head(inputs_embeds=joined[None]).logits[0].numpy()
    return made


def dflash_hidden(folder: Path) -> dict[str, Logits]:
    """A drafted block's rows [L, D] by transformers' DFlash, for each context of the drafter's case."""
    torch, library = importlib.import_module("torch"), importlib.import_module("transformers")
    cache_of = importlib.import_module("transformers.cache_utils").DFlashCache
    case = DrafterCase.of(folder)
    config = library.MuseGlimmerAssistantConfig(**case.config_there())
    config._attn_implementation = "eager"
    model = library.MuseGlimmerAssistantModel(config).eval()
    renamed = {"fc": "encoder.fc", "hidden_norm": "encoder.output_norm_enc"}
    state = {}
    for path, slot in case.plan.tensors.slots.items():
        name = slot.sources[0].name
        if "mix." not in path and "selector" not in path:
            state[f"{renamed.get(name, name)}.weight"] = torch.tensor(case.reader[path], dtype=torch.float32)
    model.load_state_dict(state, strict=True)
    made = {}
    for context in (context for context in CONTEXTS if context):
        taps, rows = (torch.tensor(part, dtype=torch.float32)[None] for part in case.rows(context))
        cache = cache_of(config=config)
        cache.set_previous_accepted_tokens(context)
        places = torch.arange(context + rows.shape[1])[None]
        with torch.no_grad():
            found = model(rows, taps, position_ids=places, past_key_values=cache).last_hidden_state
        made[f"context_{context}"] = found[0].numpy()
    return made


def _tapped(family: str, model: Any, ids: Any) -> Any:
    """The rows that a head reads: the head's input, or the streams before the mixer [1, T, D or S * D]."""
    decoder = model.get_decoder()
    if family != "qwen4_exp":
        return decoder(input_ids=ids).last_hidden_state
    seen: list[Any] = []
    hook = decoder.hyper_connection_mixer.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    decoder(input_ids=ids)
    hook.remove()
    return seen[0]


def _with_streams(head: Any, rows: Any, streams: Any) -> Logits:
    """The logits of a model whose first layer reads `streams` instead of copies of its input rows."""

    def enter(module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (streams[None], *inputs[1:]), named

    hook = head.get_decoder().layers[0].register_forward_pre_hook(enter, with_kwargs=True)
    made: Logits = head(inputs_embeds=rows[None]).logits[0].numpy()
    hook.remove()
    return made


def _loaded(family: str, folder: Path) -> Any:
    torch, library = importlib.import_module("torch"), importlib.import_module("transformers")
    library.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    text = text_part(_config(folder)) | dict(_CONFIG_THERE.get(family, {}))
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
    bound = SlotReader.of(folder, PLANS[family](_config(folder)).tensors).bound
    swapped = any(found.swapped for found in bound.values() if found.slot.weight.rule == "conv")
    return swapped or any(found.module.weight.startswith("language_model.") for found in bound.values())


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config
