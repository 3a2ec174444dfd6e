"""Matches a plan's slots with the tensors a checkpoint has, by names, shapes and dtypes alone.

Reads headers, never a weight. Every slot ends with exactly one source; every tensor ends used, known or refused by
name. Refusals are ConfigError sentences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tensorfold.domain.families.fields import ConfigError, listed
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.storage import Quantization, Storage
from tensorfold.domain.families.stored_modules import OWN, Headers, Module, ModuleReader, weight_name
from tensorfold.domain.families.tensors import Slot, Source, TensorMap

_EACH = "{e}"


@dataclass(frozen=True, slots=True)
class Bound:
    """What fills a slot: one module, or one for each entry of the first axis, to be stacked, all stored alike.

    `source` tells how the stored values become the slot's (view, cut, log); `swapped` that the last two axes must be
    swapped; `add_one` that one is added in float32, None when only the values can tell.
    """

    slot: Slot
    source: Source
    modules: tuple[Module, ...]
    storage: Storage
    swapped: bool = False
    add_one: bool | None = False

    @property
    def each(self) -> bool:
        """Whether every entry of the first axis is a module of its own, even where there is but one."""
        return _EACH in self.source.name

    @property
    def module(self) -> Module:
        """The first, and of a slot stored in one piece the only, module."""
        return self.modules[0]


def resolve(plan: DecoderPlan, tensors: Headers, quantization: Quantization | None) -> Mapping[str, Bound]:
    """The binding of every slot of the plan's map; optional slots may be absent from it.

    Raises ConfigError naming missing tensors, tensors nobody asked for, and shapes, dtypes or widths that do not fit.
    """
    return bind(plan.tensors, tensors, quantization)


def bind(table: TensorMap, tensors: Headers, quantization: Quantization | None) -> Mapping[str, Bound]:
    """As `resolve`, for a tensor map that stands alone, such as a draft model's."""
    binder = _Binder(table, tensors, ModuleReader(table, tensors, quantization))
    bound = {path: found for path, slot in table.slots.items() if (found := binder.find(slot)) is not None}
    _check_missing(table, bound)
    _check_leftovers(table, tensors, bound)
    return _centred(bound)


class _Binder:
    """Finds the source of a slot and reads its modules."""

    def __init__(self, table: TensorMap, tensors: Headers, reader: ModuleReader) -> None:
        self._table, self._tensors, self._reader = table, tensors, reader

    def find(self, slot: Slot) -> Bound | None:
        for prefix in self._table.prefixes:
            for source in slot.sources:
                name = prefix + source.name
                # The names of all entries are made only where the first is there: a config may state a great many.
                if weight_name(name.replace(_EACH, "0"), source) in self._tensors:
                    return self._bound(slot, source, _names(name, slot))
        return None

    def _bound(self, slot: Slot, source: Source, names: Sequence[str]) -> Bound:
        lacking = [name for name in (weight_name(n, source) for n in names) if name not in self._tensors]
        if lacking:
            raise ConfigError(f"The checkpoint lacks {listed(lacking)}; {OWN}.")
        shape = _stored_shape(slot, source)
        found = [self._reader.read(slot.weight, source, name, shape) for name in names]
        kinds = {(stored.storage, stored.swapped) for stored in found}
        if len(kinds) > 1:
            raise ConfigError(
                f"{names[0]} and its {len(names) - 1} fellows are stored in {len(kinds)} ways; they must be alike."
            )
        storage, swapped = kinds.pop()
        return Bound(slot, source, tuple(stored.module for stored in found), storage, swapped)


def _names(name: str, slot: Slot) -> tuple[str, ...]:
    return tuple(name.replace(_EACH, str(e)) for e in range(slot.shape[0])) if _EACH in name else (name,)


def _stored_shape(slot: Slot, source: Source) -> tuple[int, ...]:
    shape = source.stored or (slot.shape[1:] if _EACH in source.name else slot.shape)
    return (*shape[:-2], shape[-1], shape[-2]) if source.transposed and not source.stored else shape


def _check_missing(table: TensorMap, bound: Mapping[str, Bound]) -> None:
    absent = tuple(group for group in table.together if not any(path.startswith(group) for path in bound))
    missing = [
        _wanted(table, slot)
        for path, slot in table.slots.items()
        if path not in bound and not slot.weight.optional and not path.startswith(absent)
    ]
    if missing:
        raise ConfigError(f"The checkpoint lacks {listed(missing)}; {OWN}.")


def _wanted(table: TensorMap, slot: Slot) -> str:
    source = slot.sources[0]
    return weight_name(table.prefixes[0] + source.name.replace(_EACH, "0"), source)


def _check_leftovers(table: TensorMap, tensors: Headers, bound: Mapping[str, Bound]) -> None:
    used = {name for found in bound.values() for module in found.modules for name in module.tensors()}
    left = [name for name in tensors if name not in used and not table.ignores(name)]
    if left:
        raise ConfigError(f"The checkpoint has tensors this model does not use: {listed(sorted(left))}; {OWN}.")


def _centred(bound: Mapping[str, Bound]) -> Mapping[str, Bound]:
    """Settle `add_one`: a file whose convolutions keep their original axis order keeps its original norms too."""
    # One tap looks alike in both orders and tells nothing.
    convolutions = [found for found in bound.values() if found.slot.weight.rule == "conv"]
    swapped = {found.swapped for found in convolutions if found.slot.shape[1] != found.slot.shape[2]}
    if len(swapped) > 1:
        raise ConfigError(f"The checkpoint mixes convolutions of both axis orders, so its norms cannot be read; {OWN}.")
    if not swapped and any(found.slot.centring == "by_conv_layout" for found in bound.values()):
        raise ConfigError(
            "The checkpoint has no convolution, whose axis order would tell how its norms are stored; config.json's "
            "layer_types must name some linear_attention."
        )
    answers: dict[str, bool | None] = {
        "never": False,
        "always": True,
        "by_conv_layout": False in swapped,
        "by_value": None,
    }
    return {path: replace(found, add_one=answers[found.slot.centring]) for path, found in bound.items()}
