"""`tensorfold info MODEL`: what a model is and what can run it, from its configuration files alone."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorfold.application.describing import Described, Here
    from tensorfold.domain.families.storage import Layout, Quantization

NOT_YET = "none: not part of this version"
_LISTED = 4


def fill(parser: argparse.ArgumentParser) -> None:
    """The command's flags and its function."""
    parser.set_defaults(run=info)
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a checkpoint's folder, a repository such as owner/name or owner/name@revision, `demo` or `demo@4bit`",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def info(flags: argparse.Namespace) -> int:
    """Run the command; 0. Raises RefusedError for a model whose family or storage is not known."""
    from tensorfold.entrypoints.cli.lines import put
    from tensorfold.entrypoints.container import Container
    from tensorfold.entrypoints.settings import cache_folder

    described = Container(cache=cache_folder(os.environ)).describer().describe(flags.model)
    if flags.json:
        put(json.dumps(_object(described), indent=2))
        return 0
    put(described.model)
    for name, value in _lines(described):
        put(f"  {name:14}{value}")
    return 0


def _lines(described: Described) -> Iterator[tuple[str, str]]:
    geometry = described.geometry
    yield "model type", described.model_type
    yield "family", described.family.title
    for name, count in (
        ("layers", geometry.layers),
        ("hidden size", geometry.width),
        ("experts", geometry.experts),
        ("vocabulary", geometry.vocabulary),
    ):
        yield name, "not stated" if count is None else f"{count:,}" if count else "none"
    yield "window", "not stated" if geometry.window is None else f"{geometry.window:,} tokens"
    yield "quantization", _stored_as(described.quantization)
    yield from _backends(described)
    if described.defaults is not None:
        yield "sampling", _sampling(described)
    yield "drafting", described.family.drafting
    if geometry.weight_bytes is not None:
        yield "weights", f"about {_size(geometry.weight_bytes)}, estimated from config.json"
    if described.side_files:
        yield "side files", ", ".join(described.side_files)
    yield "here", _where(described.here, described.model)
    yield from _template(described.here)
    if described.license is not None:
        special = described.license.special
        yield "licence", described.license.name + (f". {special}" if special else "")


def _backends(described: Described) -> Iterator[tuple[str, str]]:
    able = [run.backend for run in described.backends if not run.refusal]
    yield "backends", ", ".join(able) if able else NOT_YET
    for run in described.backends:
        if run.refusal:
            yield f"not {run.backend}", run.refusal


def _stored_as(quantization: Quantization | None) -> str:
    if quantization is None:
        return "none: plain values"
    others = [(path, layout) for path, layout in sorted(quantization.modules.items()) if layout != quantization.default]
    shown = ", ".join(f"{path} {_layout(layout)}" for path, layout in others[:_LISTED])
    more = f" and {len(others) - _LISTED:,} more" if len(others) > _LISTED else ""
    return f"affine, {_layout(quantization.default)}" + (f"; otherwise: {shown}{more}" if others else "")


def _layout(layout: Layout | None) -> str:
    return "plain" if layout is None else f"{layout.bits}-bit in groups of {layout.group}"


def _sampling(described: Described) -> str:
    from tensorfold.application.settings import SamplingDefaults
    from tensorfold.entrypoints.cli.opening import sampling_words

    stated = described.defaults
    assert stated is not None
    return sampling_words(SamplingDefaults(stated.temperature, stated.top_k, stated.top_p, stated.min_p))


def _where(here: Here, model: str) -> str:
    if here.folder is None:
        return f"not on this machine; `tensorfold pull {model}` brings it"
    if here.missing:
        named = ", ".join(here.missing[:_LISTED])
        return f"in part: {named}{' and others are' if len(here.missing) > _LISTED else ' missing'} in {here.folder}"
    return f"complete in {here.folder}"


def _template(here: Here) -> Iterator[tuple[str, str]]:
    """Which file the chat template comes from, where the files are here."""
    if here.folder is None or here.missing:
        return
    for name in ("chat_template.jinja", "tokenizer_config.json"):
        if (here.folder / name).is_file():
            yield "template", name if name.endswith(".jinja") else f"{name}, if it holds one"
            return
    yield "template", "none"


def _size(count: int) -> str:
    from tensorfold.entrypoints.cli.progress import size

    return size(count)


def _object(described: Described) -> dict[str, Any]:
    geometry, defaults, quantization = described.geometry, described.defaults, described.quantization
    return {
        "model": described.model,
        "model_type": described.model_type,
        "family": described.family.title,
        "served": described.family.served,
        "layers": geometry.layers,
        "hidden_size": geometry.width,
        "experts": geometry.experts,
        "vocabulary": geometry.vocabulary,
        "window": geometry.window,
        "quantization": None if quantization is None else _quantization_object(quantization),
        "backends": [run.backend for run in described.backends if not run.refusal],
        "refusals": {run.backend: run.refusal for run in described.backends if run.refusal},
        "sampling": None
        if defaults is None
        else {
            "temperature": defaults.temperature,
            "top_k": defaults.top_k,
            "top_p": defaults.top_p,
            "min_p": defaults.min_p,
        },
        "drafting": described.family.drafting,
        "estimated_weight_bytes": geometry.weight_bytes,
        "side_files": list(described.side_files),
        "complete": described.here.complete,
        "folder": None if described.here.folder is None else str(described.here.folder),
        "missing": list(described.here.missing),
        "license": None if described.license is None else described.license.name,
        "license_terms": None if described.license is None else described.license.special or None,
    }


def _quantization_object(quantization: Quantization) -> dict[str, Any]:
    def layout(value: Layout | None) -> dict[str, int] | None:
        return None if value is None else {"bits": value.bits, "group_size": value.group}

    default = quantization.default
    others = {path: layout(value) for path, value in quantization.modules.items() if value != default}
    return {"mode": "affine", "bits": default.bits, "group_size": default.group, "modules": others}
