"""What can be said of a config.json without a weight: who serves it, what it needs beside its shards, how large it is.

Knows the catalogue and the plan types, never a file. An estimate counts the plan's weights as the config states them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tensorfold.domain.families.catalogue import Backend, family_of, find, refusal_of, served
from tensorfold.domain.families.exl3_block import parse_exl3
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.storage import Layout, Quantization
from tensorfold.domain.families.tensors import SideFile, Slot

BACKENDS: tuple[Backend, ...] = ("mlx", "cuda")
_DENSE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_SCALE_BYTES = 4
"""A scale and a bias of two bytes each, for every group."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Whether a backend can run a config: `refusal` is empty, or one sentence."""

    backend: Backend
    refusal: str


def runs(config: Mapping[str, Any]) -> tuple[Runs, ...]:
    """What each backend says of a config; empty where no family answers to it.

    Of a family that is not served yet the family's own refusals are told: they will hold when it is.
    """
    family = find(config.get("model_type"))
    if family is None:
        return ()
    found = ((backend, family.reader.refuse(config, backend)) for backend in BACKENDS)
    return tuple(Runs(backend, own or refusal_of(config, backend) or "") for backend, own in found)


def check_served(name: str, config: Mapping[str, Any]) -> None:
    """Refuse a config that no backend of this version can run, naming the repository. Raises ConfigError."""
    family = family_of(config)
    if not family.served and parse_exl3(config) is None:
        raise ConfigError(
            f"{name} is a {family.title} checkpoint, which is not part of this version; it serves: {served()}."
        )
    refusals = [family.reader.refuse(config, backend) for backend in family.served_on or family.backends]
    if None not in refusals:
        raise ConfigError(str(refusals[0]))


def side_files(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of `beside`."""
    return tuple(file.name for file in beside(config))


def beside(config: Mapping[str, Any]) -> tuple[SideFile, ...]:
    """Weight files beside the checkpoint's own shards that its family names; none where the plan cannot be made."""
    family = find(config.get("model_type"))
    if family is None:
        return ()
    try:
        return family.reader.plan(config).tensors.side_files
    except ConfigError:
        return ()


def estimated_bytes(plan: DecoderPlan, quantization: Quantization | None) -> int:
    """Bytes of the weights, as far as config.json tells: codes, scales and biases where affine, else plain values."""
    return sum(_slot_bytes(slot, plan, quantization) for slot in plan.tensors.slots.values())


def _slot_bytes(slot: Slot, plan: DecoderPlan, quantization: Quantization | None) -> int:
    weight, dense = slot.weight, _DENSE_BYTES.get(plan.activation, 2)
    values = math.prod(weight.shape)
    bias = math.prod(weight.bias_shape(weight.shape)) * dense if weight.bias else 0
    layout = _layout(slot, plan, quantization) if weight.rule in ("matrix", "router") else None
    if layout is not None and len(weight.shape) > 1 and weight.shape[-1] % layout.group == 0:
        return values * layout.bits // 8 + values // layout.group * _SCALE_BYTES + bias
    width = {"integer": 8, "float32": 4}.get(weight.rule, dense)
    return values * width + bias


def _layout(slot: Slot, plan: DecoderPlan, quantization: Quantization | None) -> Layout | None:
    if quantization is None:
        return None
    names = tuple(prefix + source.name for source in slot.sources for prefix in plan.tensors.prefixes)
    is_stated, layout = quantization.stated(names)
    return layout if is_stated else quantization.default
