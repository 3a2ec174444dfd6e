"""`tensorfold info MODEL`: what a model is and what can run it, from its configuration files alone."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorfold.application.describing import Described, DescribedDrafter, Here
    from tensorfold.application.fitting import Fitting
    from tensorfold.domain.families.exl3_block import Exl3
    from tensorfold.domain.families.plans import License
    from tensorfold.domain.families.storage import Layout, Quantization
    from tensorfold.entrypoints.container import Container

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
    from tensorfold.application.describing import Described
    from tensorfold.entrypoints.cli.lines import put
    from tensorfold.entrypoints.container import Container
    from tensorfold.entrypoints.settings import cache_folder

    container = Container(cache=cache_folder(os.environ))
    described = container.describer().describe(flags.model)
    fits = _fits(described, flags, container) if isinstance(described, Described) else None
    if flags.json:
        told = _object(described, fits) if isinstance(described, Described) else _drafter_object(described)
        put(json.dumps(told, indent=2))
        return 0
    put(described.model)
    for name, value in _lines(described, fits) if isinstance(described, Described) else _drafter_lines(described):
        put(f"  {name:14}{value}")
    return 0


def _fits(described: Described, flags: argparse.Namespace, container: Container) -> Fitting | None:
    """The window of a start here; None where files or every backend lack. Raises RefusedError for bad variables."""
    from tensorfold.application.fitting import fitting
    from tensorfold.application.ports.checkpoints import RefusedError
    from tensorfold.entrypoints.cli.choosing import choose_backend
    from tensorfold.entrypoints.settings import memory_settings, prompt_settings

    folder, memory = described.here.folder, memory_settings(flags, os.environ)
    if folder is None or described.here.missing:
        return None
    try:
        name = choose_backend("auto", container).name
    except RefusedError:
        return None
    prompts = prompt_settings(flags, os.environ, name)
    return fitting(folder, container.backend(name), container.reader(), memory, prompts)


def _lines(described: Described, fits: Fitting | None) -> Iterator[tuple[str, str]]:
    from tensorfold.entrypoints.cli.sizes import size_lines

    plan = described.plan
    yield "model type", described.model_type
    yield "family", described.family.title
    (layers, parameters, state) = size_lines(described.facts)
    yield layers
    yield "hidden size", f"{plan.width:,}"
    yield "experts", f"{described.facts.experts:,}" if described.facts.experts else "none"
    yield "vocabulary", f"{plan.embedding.vocabulary:,}"
    yield "window", f"{plan.context:,} tokens"
    yield parameters
    yield state
    yield "quantization", _exl3(described.exl3) if described.exl3 else _stored_as(described.quantization)
    yield from _backends(described)
    yield "sampling", _sampling(described)
    yield "drafting", described.family.drafting
    if described.weight_bytes is not None:
        yield "weights", f"about {_size(described.weight_bytes)}, estimated from config.json"
    if described.side_files:
        yield "side files", ", ".join(described.side_files)
    if fits is not None:
        yield "fits", _fitting(fits)
    yield "here", _where(described.here, described.model)
    yield from _template(described.here)
    yield from _license(described.license)


def _drafter_lines(described: DescribedDrafter) -> Iterator[tuple[str, str]]:
    from tensorfold.entrypoints.cli.sizes import billions, state_words

    drafter = described.drafter
    yield "drafter", "DFlash2"
    yield "drafts for", described.target.title if described.target else "no model listed here"
    yield "layers", f"{len(drafter.layers)}"
    yield "hidden size", f"{drafter.width:,}"
    yield "vocabulary", f"{drafter.vocabulary:,}"
    yield "block", f"{drafter.block} positions, {drafter.block - 1} of them drafts of {drafter.candidates} candidates"
    yield "reads", f"the model after {', '.join(str(tap.layer) for tap in drafter.taps)} layers"
    yield "parameters", billions(described.parameters)
    if described.state is not None:
        yield "state", state_words(described.state)
    yield "here", _where(described.here, described.model)
    yield from _license(described.license)


def _fitting(fits: Fitting) -> str:
    from tensorfold.domain.memory.budgets import gib

    if fits.refusal:
        return f"not on {fits.backend}: {fits.refusal}"
    held = f"weights {gib(fits.weights)} of a budget of {gib(fits.budget)}"
    return f"{fits.context:,} tokens of context on {fits.backend}, set by {fits.bound}; {held}"


def _license(terms: License | None) -> Iterator[tuple[str, str]]:
    if terms is not None:
        yield "licence", terms.name + (f". {terms.special}" if terms.special else "")


def _backends(described: Described) -> Iterator[tuple[str, str]]:
    able = [run.backend for run in described.backends if not run.refusal]
    yield "backends", ", ".join(able) if able else NOT_YET if not described.family.served else "none"
    for run in described.backends:
        if run.refusal:
            yield f"not {run.backend}", run.refusal


def _exl3(exl3: Exl3) -> str:
    head = f", head {exl3.head_bits:g}" if exl3.head_bits else ""
    codebook = f", codebook {exl3.codebook}" if exl3.codebook else ""
    return f"EXL3, {exl3.bits:g} bits a weight on average{head}{codebook}; experimental"


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


def _object(described: Described, fits: Fitting | None) -> dict[str, Any]:
    from tensorfold.entrypoints.cli.sizes import size_object

    plan, defaults, quantization, exl3 = described.plan, described.defaults, described.quantization, described.exl3
    return {
        "model": described.model,
        "model_type": described.model_type,
        "family": described.family.title,
        "served": described.family.served,
        **size_object(described.facts),
        "hidden_size": plan.width,
        "experts": described.facts.experts,
        "vocabulary": plan.embedding.vocabulary,
        "window": plan.context,
        "quantization": None if quantization is None else _quantization_object(quantization),
        "exl3": None
        if exl3 is None
        else {"bits": exl3.bits, "head_bits": exl3.head_bits or None, "codebook": exl3.codebook or None},
        "backends": [run.backend for run in described.backends if not run.refusal],
        "refusals": {run.backend: run.refusal for run in described.backends if run.refusal},
        "sampling": {
            "temperature": defaults.temperature,
            "top_k": defaults.top_k,
            "top_p": defaults.top_p,
            "min_p": defaults.min_p,
        },
        "drafting": described.family.drafting,
        "estimated_weight_bytes": described.weight_bytes,
        "side_files": list(described.side_files),
        "fits": None if fits is None else _fitting_object(fits),
        **_kept(described.here, described.license),
    }


def _drafter_object(described: DescribedDrafter) -> dict[str, Any]:
    from tensorfold.entrypoints.cli.sizes import state_object

    drafter, target = described.drafter, described.target
    return {
        "model": described.model,
        "drafter": "dflash2",
        "drafts_for": None if target is None else target.title,
        "layers": len(drafter.layers),
        "hidden_size": drafter.width,
        "vocabulary": drafter.vocabulary,
        "block": drafter.block,
        "candidates": drafter.candidates,
        "taps": [tap.layer for tap in drafter.taps],
        "parameters": described.parameters,
        "state": None if described.state is None else state_object(described.state),
        **_kept(described.here, described.license),
    }


def _kept(here: Here, terms: License | None) -> dict[str, Any]:
    return {
        "complete": here.complete,
        "folder": None if here.folder is None else str(here.folder),
        "missing": list(here.missing),
        "license": None if terms is None else terms.name,
        "license_terms": None if terms is None else terms.special or None,
    }


def _fitting_object(fits: Fitting) -> dict[str, Any]:
    return {
        "backend": fits.backend,
        "context": None if fits.refusal else fits.context,
        "refusal": fits.refusal or None,
        "budget_bytes": None if fits.refusal else fits.budget,
        "weight_bytes": None if fits.refusal else fits.weights,
    }


def _quantization_object(quantization: Quantization) -> dict[str, Any]:
    def layout(value: Layout | None) -> dict[str, int] | None:
        return None if value is None else {"bits": value.bits, "group_size": value.group}

    default = quantization.default
    others = {path: layout(value) for path, value in quantization.modules.items() if value != default}
    return {"mode": "affine", "bits": default.bits, "group_size": default.group, "modules": others}
