"""Puts a family's tensor names to the weights its plan needs, so that a family file is a table of names.

Knows no family. A table's keys are slot paths with `*` for the layer; a `*` in a name is that layer's number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tensorfold.domain.families.tensors import Centring, Rule, Slot, Source, Weight

_LAYER = re.compile(r"(?<=layers\.)\d+")


@dataclass(frozen=True, slots=True)
class Named:
    """Names of a slot in the order they are tried, where more must be said: its centring, or the family's own rule."""

    names: tuple[str | Source, ...]
    centring: Centring = "never"
    rule: Rule | None = None


Names = str | Source | Named


def name_weights(weights: Mapping[str, Weight], table: Mapping[str, Names]) -> dict[str, Slot]:
    """A slot for every weight. Raises KeyError when the table has no name for one."""
    return {path: _slot(path, weight, table) for path, weight in weights.items()}


def _slot(path: str, weight: Weight, table: Mapping[str, Names]) -> Slot:
    found = _LAYER.search(path)
    entry = table[_LAYER.sub("*", path)]
    named = entry if isinstance(entry, Named) else Named((entry,))
    layer = found.group() if found else ""
    names = tuple(_numbered(name, layer) for name in named.names)
    return Slot(names, replace(weight, rule=named.rule) if named.rule else weight, named.centring)


def _numbered(name: str | Source, layer: str) -> str | Source:
    if isinstance(name, str):
        return name.replace("*", layer)
    return replace(name, name=name.name.replace("*", layer))


def placed(path: str, module: str, table: Mapping[str, Names], *, always: bool = False) -> dict[str, Names]:
    """The names of one sublayer put below a slot path and a module path.

    `always` makes norms that follow the convolutions' layout always centred: conversions shift none of a draft head.
    """
    return {f"{path}.{slot}": _below(module, names, always) for slot, names in table.items()}


def either(*names: str | Source) -> Named:
    """Names tried in this order."""
    return Named(names)


def _below(module: str, names: Names, always: bool) -> Names:
    if not isinstance(names, Named):
        return _below_one(module, names)
    shifts = always and names.centring == "by_conv_layout"
    inner = tuple(_below_one(module, name) for name in names.names)
    return replace(names, names=inner, centring="always" if shifts else names.centring)


def _below_one(module: str, name: str | Source) -> str | Source:
    return f"{module}.{name}" if isinstance(name, str) else replace(name, name=f"{module}.{name.name}")
