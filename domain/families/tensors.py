"""Which checkpoint tensors fill which slots of a plan, in every naming a family is published in.

A slot is a path such as `layers.3.attention.q`; candidates are tried in order. Expert slots may be stacked in one
tensor or spread over one tensor per expert. Shapes are logical: the affine form of a slot is checked by arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Rule = Literal["matrix", "plain", "float32", "router"]
Split = Literal["none", "rows", "columns", "heads", "experts", "vocabulary"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One weight of the plan.

    `names` are candidate tensor names without the `.weight` of a module where `module` is True (an affine module then
    brings `.scales` and `.biases`). `shape` is the logical shape, outputs first. `rule` "matrix" may be affine or
    dense, "router" follows the family's router rule, "plain" is dense, "float32" is dense and kept in float32.
    `per_expert` names contain `{e}` and are stacked along a new first axis. `rows` takes a slice of a fused tensor;
    `swap_last` transposes the last two axes when the file's shape says so; `split` tells how two ranks share it.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    rule: Rule = "matrix"
    module: bool = True
    optional: bool = False
    per_expert: tuple[str, ...] = ()
    rows: tuple[int, int] | None = None
    swap_last: bool = False
    centred_in_source: bool = False
    split: Split = "none"


@dataclass(frozen=True, slots=True)
class TensorMap:
    """Slots by path, prefixes of tensors that are known and not needed, and the affine layouts a family takes.

    `bits` and `groups` limit the affine matrices; `prefixes` are tried in front of each name, in order.
    """

    slots: dict[str, Slot]
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[str, ...] = ()
    bits: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    groups: tuple[int, ...] = (32, 64, 128)
    side_files: tuple[str, ...] = field(default=())
