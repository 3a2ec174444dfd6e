"""Which checkpoint tensors fill which slots of a plan, in every naming a family is published in.

A slot is a path such as `layers.3.attention.q`. Shapes are logical: outputs first, inputs last, before any packing.
Nothing here reads a file: `binding.resolve` matches slots with the headers a reader found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tensorfold.domain.families.storage import AFFINE_BITS, AFFINE_GROUPS

Rule = Literal["matrix", "router", "plain", "conv", "float32", "integer"]
Split = Literal["none", "rows", "columns", "heads", "vocabulary"]
Centring = Literal["never", "always", "by_conv_layout", "by_value"]


@dataclass(frozen=True, slots=True)
class Source:
    """One way in which a checkpoint writes a slot.

    `name` is the tensor's name without a prefix. Of a `module` it is the module's path: `.weight` (and `.scales`,
    `.biases`, `.bias`) follow it. `{e}` in it stands for each entry of the slot's first axis in turn, one tensor each.
    `stored` is the logical shape in the file where it is not the slot's (or the slot's less its first axis); it is then
    seen as `view` and cut to `cut` along `axis`. `transposed` says that the last two axes are stored swapped, and
    `takes_log` that the tensor holds exp of the slot's values.
    """

    name: str
    module: bool = True
    stored: tuple[int, ...] = ()
    view: tuple[int, ...] = ()
    cut: tuple[int, int] | None = None
    axis: int = -2
    transposed: bool = False
    takes_log: bool = False


@dataclass(frozen=True, slots=True)
class Weight:
    """What an op needs of one weight, whatever a checkpoint calls it.

    `shape` is the logical shape. `rule`: "matrix" may be dense or affine, "router" may be dense or affine of the map's
    `router_bits`, "plain" is dense, "conv" is dense [channels, 1, taps] with the last two axes in either order,
    "float32" is dense and computed with in float32, "integer" is int64. `bias` says that the module brings an ordinary
    `.bias` of its outputs. `split` tells how two ranks share it: halves of its outputs (`rows`), of its inputs
    (`columns`), of its first axis (`heads`), of the ids (`vocabulary`); outputs in `sections` are halved section by
    section.
    """

    shape: tuple[int, ...]
    rule: Rule = "matrix"
    bias: bool = False
    optional: bool = False
    split: Split = "none"
    sections: tuple[int, ...] = ()

    def bias_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the bias beside a module stored in `shape`: its outputs, or all values of a norm."""
        if self.rule == "conv":
            return shape[:1]
        return shape[:-1] if len(shape) > 1 else shape


@dataclass(frozen=True, slots=True)
class Slot:
    """One weight of a plan and the names it may have, tried in order; a plain string is a module of that path.

    `centring` tells when one is added to the stored values: never, always, when the file keeps convolutions in their
    original axis order, or after a look at the values.
    """

    names: tuple[str | Source, ...]
    weight: Weight
    centring: Centring = "never"

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self.weight.shape

    @property
    def sources(self) -> tuple[Source, ...]:
        """The names as sources."""
        return tuple(Source(name) if isinstance(name, str) else name for name in self.names)


@dataclass(frozen=True, slots=True)
class SideFile:
    """A weight file beside the checkpoint's own shards; its tensors are seen with `prefix` before their names."""

    name: str
    prefix: str


@dataclass(frozen=True, slots=True)
class TensorMap:
    """Slots by path and what may surround them in a checkpoint.

    `prefixes` are tried in front of each name, in order. `ignored` are patterns of tensors that are known and not
    needed, `*` standing for any text. `bits`, `groups` and `router_bits` limit the affine layouts the family takes.
    Slots whose path starts with one of `together` are all there or all absent. `probes` is a pattern of the slots whose
    means tell whether a `by_value` slot is stored around zero.
    """

    slots: Mapping[str, Slot]
    prefixes: tuple[str, ...] = ("",)
    ignored: tuple[str, ...] = ()
    bits: tuple[int, ...] = AFFINE_BITS
    groups: tuple[int, ...] = AFFINE_GROUPS
    router_bits: tuple[int, ...] = AFFINE_BITS
    together: tuple[str, ...] = ()
    probes: str = ""
    side_files: tuple[SideFile, ...] = ()

    def ignores(self, name: str) -> bool:
        """Whether a tensor of that name is known and not needed."""
        return any(matches(pattern, name) for pattern in self.ignored)


def matches(pattern: str, name: str) -> bool:
    """Whether a whole name fits a pattern in which `*` stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
