"""Matches a plan's slots with the tensors a checkpoint has, by names, shapes and dtypes alone.

Reads headers, never a weight. Every slot ends with exactly one source; every tensor ends used, known or refused by
name. Refusals are ConfigError sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.storage import (
    FLOAT_DTYPES,
    Affine,
    Dense,
    Layout,
    Quantization,
    Storage,
    TensorHeader,
    affine_layout,
)
from tensorfold.domain.families.tensors import Slot, Source, TensorMap

_LISTED = 8
_OWN = "fetch it again or check that config.json is its own"
_EXPERTS = "{e}"
Headers = Mapping[str, TensorHeader]


@dataclass(frozen=True, slots=True)
class Module:
    """Tensor names of one stored weight; `scales` and `biases` when affine, `bias` where there is one, else empty."""

    weight: str
    scales: str = ""
    biases: str = ""
    bias: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """What fills a slot: one module, or one per expert to be stacked, all stored alike.

    `source` tells how the stored values become the slot's (view, rows, log); `swapped` that the last two axes must be
    swapped; `add_one` that one is added in float32, None when only the values can tell.
    """

    slot: Slot
    source: Source
    modules: tuple[Module, ...]
    storage: Storage
    swapped: bool = False
    add_one: bool | None = False

    @property
    def module(self) -> Module:
        """The first, and of a slot without experts the only, module."""
        return self.modules[0]


def resolve(plan: DecoderPlan, tensors: Headers, quantization: Quantization | None) -> Mapping[str, Bound]:
    """The binding of every slot of the plan's map; optional slots may be absent from it.

    Raises ConfigError naming missing tensors, tensors nobody asked for, and shapes, dtypes or widths that do not fit.
    """
    return bind(plan.tensors, tensors, quantization)


def bind(table: TensorMap, tensors: Headers, quantization: Quantization | None) -> Mapping[str, Bound]:
    """As `resolve`, for a tensor map that stands alone, such as a draft model's."""
    binder = _Binder(table, tensors, quantization)
    bound: dict[str, Bound] = {}
    missing: list[str] = []
    for path, slot in table.slots.items():
        found = binder.find(slot)
        if found is not None:
            bound[path] = found
        elif not slot.optional:
            missing.append(binder.wanted(slot))
    if missing:
        raise ConfigError(f"The checkpoint lacks {_listed(missing)}; {_OWN}.")
    binder.check_leftovers()
    return _with_centring(bound)


class _Binder:
    """One pass over a tensor map; remembers which tensors were used."""

    def __init__(self, table: TensorMap, tensors: Headers, quantization: Quantization | None) -> None:
        self.table, self.tensors, self.quantization = table, tensors, quantization
        self.used: set[str] = set()

    def find(self, slot: Slot) -> Bound | None:
        for prefix in self.table.prefixes:
            for source in slot.sources:
                names = _expert_names(prefix + source.name, slot.shape)
                if self._weight_name(names[0], source) in self.tensors:
                    return self._bound(slot, source, names)
        return None

    def wanted(self, slot: Slot) -> str:
        source = slot.sources[0]
        return self._weight_name(self.table.prefixes[0] + source.name.replace(_EXPERTS, "0"), source)

    def check_leftovers(self) -> None:
        known = self.table.ignored
        left = [n for n in self.tensors if n not in self.used and not any(fnmatchcase(n, p) for p in known)]
        if left:
            raise ConfigError(
                f"The checkpoint has tensors this model does not use: {_listed(sorted(left))}; "
                "check that config.json is its own."
            )

    def _bound(self, slot: Slot, source: Source, names: tuple[str, ...]) -> Bound:
        shape = source.stored or (slot.shape[1:] if len(names) > 1 else slot.shape)
        lacking = [self._weight_name(n, source) for n in names if self._weight_name(n, source) not in self.tensors]
        if lacking:
            raise ConfigError(f"The checkpoint lacks {_listed(lacking)}; {_OWN}.")
        found = [self._module(slot, source, name, shape) for name in names]
        storages = {storage for _, storage, _ in found}
        if len(storages) > 1:
            raise ConfigError(
                f"{names[0]} and its fellow experts are stored in {len(storages)} ways; they must be alike."
            )
        swapped = any(swapped for _, _, swapped in found)
        return Bound(slot, source, tuple(module for module, _, _ in found), storages.pop(), swapped)

    def _module(self, slot: Slot, source: Source, name: str, shape: tuple[int, ...]) -> tuple[Module, Storage, bool]:
        weight = self._weight_name(name, source)
        scales, biases = f"{name}.scales", f"{name}.biases"
        affine = source.module and scales in self.tensors
        stated, layout = self.quantization.stated(self._paths(name)) if self.quantization else (False, None)
        if affine != (layout is not None) and (stated or self.quantization is None):
            raise ConfigError(
                f"config.json says that {name} is {'not ' if affine else ''}quantized, but the checkpoint "
                f"{'has' if affine else 'lacks'} {scales}."
            )
        bias = self._bias(slot, source, name, shape)
        module = Module(weight, scales, biases, bias) if affine else Module(weight, bias=bias)
        storage: Storage
        swapped = False
        if affine:
            storage = self._affine(slot, module, shape, layout)
        else:
            storage, swapped = self._dense(source, weight, shape)
        self.used.update(part for part in (module.weight, module.scales, module.biases, module.bias) if part)
        return module, storage, swapped

    def _dense(self, source: Source, name: str, shape: tuple[int, ...]) -> tuple[Dense, bool]:
        header = self._float(name)
        other = (*shape[:-2], shape[-1], shape[-2]) if source.swap_last else shape
        if header.shape not in (shape, other):
            raise _misshapen(header, shape)
        return Dense(header.dtype), header.shape != shape

    def _affine(self, slot: Slot, module: Module, shape: tuple[int, ...], stated: Layout | None) -> Affine:
        if slot.rule not in ("matrix", "router"):
            raise ConfigError(f"{module.weight} is quantized, which this tensor must not be.")
        weight, scales, biases = self._header(module.weight), self._float(module.scales), self._float(module.biases)
        groups = scales.shape[-1] if scales.shape else 0
        layout = affine_layout(weight.shape[-1] if weight.shape else 0, groups, shape[-1])
        fits = weight.dtype == "U32" and weight.shape[:-1] == shape[:-1] == scales.shape[:-1]
        if layout is None or not fits or biases.shape != scales.shape or biases.dtype != scales.dtype:
            raise ConfigError(
                f"{module.weight} is {weight.dtype} {list(weight.shape)} with scales {scales.dtype} "
                f"{list(scales.shape)} and biases {biases.dtype} {list(biases.shape)}, which is no affine form of "
                f"{list(shape)}."
            )
        if stated is not None and stated != layout:
            raise ConfigError(
                f"config.json states {stated.bits} bits in groups of {stated.group} for {module.weight}, but its shape "
                f"is that of {layout.bits} bits in groups of {layout.group}."
            )
        self._check_taken(slot, module.weight, layout)
        return Affine(layout.bits, layout.group, scales.dtype)

    def _check_taken(self, slot: Slot, name: str, layout: Layout) -> None:
        bits = self.table.router_bits if slot.rule == "router" else self.table.bits
        if layout.bits not in bits or layout.group not in self.table.groups:
            raise ConfigError(
                f"{name} is stored in {layout.bits} bits in groups of {layout.group}; this model is read in "
                f"{_either(bits)} bits in groups of {_either(self.table.groups)}."
            )

    def _bias(self, slot: Slot, source: Source, name: str, shape: tuple[int, ...]) -> str:
        if not slot.bias:
            return ""
        header = self._float(f"{name}.bias")
        if header.shape != shape[:-1]:
            raise _misshapen(header, shape[:-1])
        return header.name

    def _paths(self, name: str) -> tuple[str, ...]:
        # Overrides are keyed by the module path of the converter's model, whose prefix may differ from the file's.
        bare = next((name.removeprefix(p) for p in self.table.prefixes if p and name.startswith(p)), name)
        return tuple(dict.fromkeys((name, *(prefix + bare for prefix in self.table.prefixes), bare)))

    def _weight_name(self, name: str, source: Source) -> str:
        return f"{name}.weight" if source.module else name

    def _header(self, name: str) -> TensorHeader:
        header = self.tensors.get(name)
        if header is None:
            raise ConfigError(f"The checkpoint lacks {name}; {_OWN}.")
        return header

    def _float(self, name: str) -> TensorHeader:
        header = self._header(name)
        if header.dtype not in FLOAT_DTYPES:
            raise ConfigError(f"{name} has dtype {header.dtype}; it must be one of {', '.join(FLOAT_DTYPES)}.")
        return header


def _with_centring(bound: dict[str, Bound]) -> Mapping[str, Bound]:
    """Settle `add_one`: a file whose convolutions keep their original axis order keeps its original norms too."""
    layouts = [b for b in bound.values() if b.source.swap_last]
    original = any(not b.swapped for b in layouts)
    answers: dict[str, bool | None] = {"never": False, "always": True, "by_conv_layout": original, "by_value": None}
    return {path: replace(b, add_one=answers[b.slot.centring]) for path, b in bound.items()}


def _expert_names(name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(name.replace(_EXPERTS, str(e)) for e in range(shape[0])) if _EXPERTS in name else (name,)


def _misshapen(header: TensorHeader, shape: tuple[int, ...]) -> ConfigError:
    return ConfigError(f"{header.name} has shape {list(header.shape)}; config.json makes it {list(shape)}.")


def _either(values: Iterable[int]) -> str:
    listed = [str(v) for v in values]
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} or {listed[-1]}"


def _listed(names: list[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest:,} more" if rest > 0 else "")


def parameters(table: TensorMap) -> int:
    """Weights in all slots of a map, biases included."""
    return sum(math.prod(s.shape) + (math.prod(s.shape[:-1]) if s.bias else 0) for s in table.slots.values())
