"""The ways of storing weights a family is read in, and the refusals about them that config.json alone allows.

Knows no file: nothing but the config has been asked for when these sentences are made. `binding` later holds every
tensor's header against the same limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorfold.domain.families.exl3_block import parse_exl3
from tensorfold.domain.families.fields import ConfigError, clipped, either, shown
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.storage import Layout, Quantization, parse_quantization, quantization_block
from tensorfold.domain.families.tensors import Slot

BACKEND_TITLES = {"mlx": "MLX", "cuda": "CUDA"}


@dataclass(frozen=True, slots=True)
class Formats:
    """What a family named `title` is read in: affine bits and groups for each backend that is meant to run it.

    `plain` are the backends that also take bf16, f16 and f32 weights. `router_bits`, where given, are those of its
    routers, which then must be affine. `checkpoint` is the published one to take instead of what is refused.
    """

    title: str
    checkpoint: str
    layouts: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(hash=False)
    plain: tuple[str, ...] = ()
    router_bits: tuple[int, ...] = ()

    def words(self, backend: str) -> str:
        """The layouts of a backend in a sentence."""
        bits, groups = self.layouts[backend]
        router = f" with a router in {either(self.router_bits)} bits" if self.router_bits else ""
        plain = " or plain values" if backend in self.plain else ""
        return f"{either(bits)} bits in groups of {either(groups)}{router}{plain}"


def refuse_config(
    formats: Formats, plan: Callable[[Mapping[str, Any]], DecoderPlan], config: Mapping[str, Any], backend: str
) -> str | None:
    """Why a backend that a family is meant for cannot serve a config, as one sentence; None when it can."""
    if backend not in formats.layouts:
        able = next(iter(formats.layouts))
        title = BACKEND_TITLES.get(able, able)
        return f"{formats.title} is served by {title} alone, not by {clipped(backend)}: start with `--backend {able}`."
    try:
        _check_method(formats, config)
        quantization = parse_quantization(config)
        made = plan(config)
    except ConfigError as error:
        return error.message
    return _refuse_layouts(formats, backend, made, quantization)


def _check_method(formats: Formats, config: Mapping[str, Any]) -> None:
    exl3 = parse_exl3(config)
    if exl3 is not None:
        raise ConfigError(
            f"{formats.title} in EXL3 is experimental and not served by this version: use {formats.checkpoint}."
        )
    block = quantization_block(config)
    if block is not None and block.has("quant_method"):
        method = shown(block.values["quant_method"])
        raise ConfigError(f"{block.place} has quant_method {method}, which is not read here: use {formats.checkpoint}.")


def _refuse_layouts(formats: Formats, backend: str, plan: DecoderPlan, quantization: Quantization | None) -> str | None:
    wanted = f"{formats.title} is read by {BACKEND_TITLES.get(backend, backend)} in {formats.words(backend)}"
    if quantization is None:
        if backend in formats.plain:
            return None
        return f"{wanted}, but config.json states no quantization: use {formats.checkpoint}."
    bits, groups = formats.layouts[backend]
    for slot in plan.tensors.slots.values():
        if slot.weight.rule not in ("matrix", "router"):
            continue
        layout = _layout(slot, plan, quantization)
        routes = slot.weight.rule == "router" and bool(formats.router_bits)
        allowed = formats.router_bits if routes else bits
        if (layout is None and routes) or (
            layout is not None and not (layout.bits in allowed and layout.group in groups)
        ):
            return f"{wanted}, but config.json states {_stated(layout)} for {_name(slot)}: use {formats.checkpoint}."
    return None


def _layout(slot: Slot, plan: DecoderPlan, quantization: Quantization) -> Layout | None:
    names = tuple(prefix + source.name for source in slot.sources for prefix in plan.tensors.prefixes)
    is_stated, layout = quantization.stated(names)
    return layout if is_stated else quantization.default


def _stated(layout: Layout | None) -> str:
    return "plain values" if layout is None else f"{layout.bits} bits in groups of {layout.group}"


def _name(slot: Slot) -> str:
    return slot.sources[0].name.replace("{e}", "0")
