"""Seeded checkpoints of any listed family in the layouts it is published in: config, shards with an index, tokenizer.

    write_checkpoint(folder, tiny("qwen3_5"), seed=1, form="mlx", quantization=Quantized(Layout(4, 64)))

`form` "hf" is the original publication, "mlx" the conversion, and "mlx_stacked" GLM's other conversion. Tensors are
made one at a time while they are written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorfold.domain.families import dflash2, gemma4, glm5_next, nemotron_h, qwen3_5, qwen4_exp
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.families.storage import Layout
from tensorfold.domain.families.tensors import TensorMap
from tests.synthetic.publications import LAYOUTS, PUBLICATIONS, Publication, Quantized
from tests.synthetic.safetensors_file import write_pending
from tests.synthetic.slot_values import SlotValues
from tests.synthetic.stored_slots import Pending, SlotSource, stored_slots
from tests.synthetic.tiny_configs import VOCABULARY, text_part
from tests.synthetic.tokenizer_files import write_tokenizer

__all__ = [
    "LAYOUTS",
    "PLANS",
    "PUBLICATIONS",
    "Quantized",
    "dflash_plan",
    "family_of",
    "true_config",
    "write_checkpoint",
    "write_drafter",
    "write_values",
]
PLANS: Mapping[str, Callable[[Mapping[str, Any]], DecoderPlan]] = {
    "qwen3_5": qwen3_5.plan,
    "qwen4_exp": qwen4_exp.plan,
    "nemotron_h": nemotron_h.plan,
    "glm5_next": glm5_next.plan,
    "gemma4": gemma4.plan,
}


def family_of(config: Mapping[str, Any]) -> str:
    """The family a config.json names."""
    return str(config["model_type"]).removesuffix("_text")


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    seed: int = 1,
    form: str = "mlx",
    quantization: Quantized | None = None,
    dtype: str = "F32",
    shards: int = 3,
) -> Path:
    """Write a checkpoint of a family's config, heads of drafts included, into `folder`, which is made, and return it.

    Dense tensors are stored in `dtype`, those that must be float32 in F32 whatever it is.
    """
    values = SlotValues.of(PLANS[family_of(config)](config), seed)
    return write_values(folder, config, values, form, quantization, dtype, shards)


def write_values(
    folder: Path,
    config: Mapping[str, Any],
    values: SlotSource,
    form: str,
    quantization: Quantized | None = None,
    dtype: str = "F32",
    shards: int = 1,
) -> Path:
    """As `write_checkpoint`, for slots whose values come from anywhere."""
    family = family_of(config)
    plan, publication = PLANS[family](config), PUBLICATIONS[family, form]
    pending = list(stored_slots(plan.tensors, values, publication, dtype, quantization))
    folder.mkdir(parents=True, exist_ok=True)
    stops = sorted(plan.stop_ids)
    _write_json(folder / "config.json", dict(config) | _block(plan.tensors, pending, quantization))
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": stops})
    if plan.head.vocabulary >= VOCABULARY:
        write_tokenizer(folder)
    aside = _side_tensors(plan.tensors, pending, publication)
    write_pending(folder, [one for one in pending if one.name not in aside], shards)
    for file, prefix in set(aside.values()):
        inside = [one for one in pending if aside.get(one.name) == (file, prefix)]
        write_pending(folder, [_renamed(one, prefix) for one in inside], 1, file)
    return folder


def write_drafter(folder: Path, config: Mapping[str, Any], seed: int = 1, dtype: str = "F32") -> Path:
    """Write a DFlash2 drafter's checkpoint, in one file as it is published, and return the folder."""
    drafter = dflash_plan(config)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", dict(config))
    values = SlotValues.of(drafter, seed)
    write_pending(folder, list(stored_slots(drafter.tensors, values, Publication(), dtype)), 1)
    return folder


def dflash_plan(config: Mapping[str, Any], target: DecoderPlan | None = None) -> DFlashDrafter:
    """The drafter of a config, for a target that tells how its rows are tapped; without one, for a plain residual."""
    return dflash2.plan(config, target)


def true_config(family: str, layers: int | None = None) -> dict[str, Any]:
    """The published config of a family, cut to its first `layers` layers when asked: a true geometry in less memory."""
    text = text_part(_TRUE[family])
    if layers is None:
        return text
    if family == "nemotron_h":
        return text | {"hybrid_override_pattern": text["hybrid_override_pattern"][:layers]}
    lists = {name: text[name][:layers] for name in ("layer_types", "mlp_layer_types") if name in text}
    if family == "gemma4":
        lists["layer_types"] = [*lists["layer_types"][:-1], "full_attention"]  # the last layer always is
    return text | {"num_hidden_layers": layers} | lists


_TRUE: Mapping[str, Mapping[str, Any]] = {
    "qwen3_5": qwen3_5.CONFIG,
    "qwen4_exp": qwen4_exp.CONFIG,
    "nemotron_h": nemotron_h.CONFIG,
    "glm5_next": glm5_next.CONFIG,
    "gemma4": gemma4.CONFIG,
}


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1))


def _block(table: TensorMap, pending: list[Pending], quantization: Quantized | None) -> dict[str, Any]:
    """The quantization block: the default, and every module that is stored otherwise."""
    if quantization is None:
        return {}
    default = quantization.default
    block: dict[str, Any] = {"group_size": default.group, "bits": default.bits, "mode": "affine"}
    shapes = {one.name: one.shape for one in pending}
    for name, shape in shapes.items():
        module = name.removesuffix(".scales")
        if module == name:
            continue
        inputs = shape[-1]
        words = shapes[f"{module}.weight"][-1]
        layout = next(lay for lay in _candidates(quantization, table) if words * 32 == inputs * lay.group * lay.bits)
        if layout != default:
            block[module] = {"group_size": layout.group, "bits": layout.bits}
    return {"quantization": block, "quantization_config": block}


def _candidates(quantization: Quantized, table: TensorMap) -> Iterator[Layout]:
    stated = [quantization.default, *(lay for lay in quantization.modules.values() if lay is not None)]
    yield from stated
    yield from (Layout(bits, lay.group) for lay in stated for bits in table.router_bits)


def _side_tensors(table: TensorMap, pending: list[Pending], publication: Publication) -> dict[str, tuple[str, str]]:
    """The side file, and the prefix it leaves out, of each tensor that stands in one."""
    if not publication.side_files:
        return {}
    return {
        one.name: (side.name, side.prefix)
        for one in pending
        for side in table.side_files
        if one.name.startswith(side.prefix)
    }


def _renamed(one: Pending, prefix: str) -> Pending:
    return Pending(one.name.removeprefix(prefix), one.dtype, one.shape, one.make)
