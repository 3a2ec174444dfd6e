"""Which checkpoint tensors fill which slots of a plan, in every naming a family is published in.

A slot is a path such as `layers.3.attention.q`. Shapes are logical: outputs first, inputs last, before any packing.
Nothing here reads a file: `binding.resolve` matches slots with the headers a reader found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Rule = Literal["matrix", "router", "plain", "float32"]
Split = Literal["none", "rows", "columns", "experts", "vocabulary"]
Centring = Literal["never", "always", "by_conv_layout", "by_value"]


@dataclass(frozen=True, slots=True)
class Source:
    """One way in which a checkpoint writes a slot.

    `name` is the tensor's name without a prefix. Of a `module` it is the module's path: `.weight` (and `.scales`,
    `.biases`, `.bias`) follow it. `{e}` in it stands for each expert in turn, stacked along a new first axis. `stored`
    is the logical shape in the file where it is not the slot's (a fused tensor, or one per expert); it is first seen as
    `view`, then cut to `rows` of its second last axis. `swap_last` allows the last two axes to be stored swapped.
    `takes_log` marks a tensor that holds exp of the slot's values.
    """

    name: str
    module: bool = True
    stored: tuple[int, ...] = ()
    view: tuple[int, ...] = ()
    rows: tuple[int, int] | None = None
    swap_last: bool = False
    takes_log: bool = False


@dataclass(frozen=True, slots=True)
class Slot:
    """One weight of the plan.

    `names` are tried in order; a plain string is a module of that path. `shape` is the logical shape. `rule`: "matrix"
    may be dense or affine, "router" may be dense or affine of `router_bits`, "plain" is dense, "float32" is dense and
    computed with in float32. `bias` says that the module brings an ordinary `.bias` of its outputs. `centring` tells
    when one is added to the stored values: never, always, when the file keeps convolutions in their original axis
    order, or after a look at the values. `split` tells how two ranks share the weight.
    """

    names: tuple[str | Source, ...]
    shape: tuple[int, ...]
    rule: Rule = "matrix"
    bias: bool = False
    optional: bool = False
    centring: Centring = "never"
    split: Split = "none"

    @property
    def sources(self) -> tuple[Source, ...]:
        """The names as sources."""
        return tuple(Source(name) if isinstance(name, str) else name for name in self.names)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """Slots by path and what may surround them in a checkpoint.

    `prefixes` are tried in front of each name, in order. `ignored` are patterns of tensors that are known and not
    needed, `*` standing for any text. `bits`, `groups` and `router_bits` limit the affine layouts the family takes.
    `side_files` names weight files beside the checkpoint's own shards whose tensors carry the slots under a prefix.
    """

    slots: Mapping[str, Slot]
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[str, ...] = ()
    bits: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    groups: tuple[int, ...] = (32, 64, 128)
    router_bits: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    side_files: tuple[str, ...] = ()
