"""How tensors are stored in a checkpoint: dtypes, affine groups, per-module overrides. Facts and arithmetic only.

Knows no file and no backend. `parse_quantization` reads what config.json states of each module, `affine_layout` derives
what a module's shapes say; `stored_modules` holds one against the other.
Source: the safetensors format's documentation and MLX's affine quantization (docs/recipes, "Formats").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorfold.domain.families.fields import ConfigError, Fields, either, shown

DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
FLOAT_DTYPES = ("BF16", "F16", "F32")
AFFINE_BITS = (2, 3, 4, 5, 6, 8)
AFFINE_GROUPS = (32, 64, 128)
_MODE_BITS, _MODE_GROUP = 4, 64
_MOST_OVERRIDES = 200_000


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """One tensor as its file's header states it; `begin` and `end` are byte offsets in the file `file`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's data."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class Dense:
    """Plain values of one float dtype (`BF16`, `F16` or `F32`)."""

    dtype: str


@dataclass(frozen=True, slots=True)
class Affine:
    """MLX affine codes: value = scale * code + bias over groups of `group` inputs; `dtype` is that of the scales."""

    bits: int
    group: int
    dtype: str


Storage = Dense | Affine


@dataclass(frozen=True, slots=True)
class Layout:
    """Width and group of an affine module, without its dtype."""

    bits: int
    group: int


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantization block: the layout of modules that are not named, and the modules that are.

    `modules[path]` is a layout, or None where the module is stated not to be quantized.
    """

    default: Layout
    modules: Mapping[str, Layout | None] = field(default_factory=dict)

    def stated(self, paths: tuple[str, ...]) -> tuple[bool, Layout | None]:
        """Whether the block names one of a module's paths, and the layout it states."""
        for path in paths:
            if path in self.modules:
                return True, self.modules[path]
        return False, None


def parse_quantization(config: Mapping[str, Any]) -> Quantization | None:
    """The MLX affine block of a config, or None when the weights are plain.

    `quantization` is read first; `quantization_config` alone is read when it has no `quant_method`. Raises ConfigError
    for other formats, by name, and for widths or groups that do not exist.
    """
    block = quantization_block(config)
    if block is None:
        return None
    if block.has("quant_method"):
        raise ConfigError(
            f"{block.place} has quant_method {shown(block.values['quant_method'])}, which is not read here; use a "
            "plain bf16, f16 or f32 checkpoint or an MLX affine conversion."
        )
    if len(block.values) > _MOST_OVERRIDES:
        raise ConfigError(f"{block.place} has {len(block.values):,} entries; the limit is {_MOST_OVERRIDES:,}.")
    default = _layout(block)
    modules = {
        path: _override(block, path, value, default)
        for path, value in block.values.items()
        if path not in ("bits", "group_size", "mode", "quantize_input") and not _is_note(value)
    }
    return Quantization(default, modules)


def quantization_block(config: Mapping[str, Any]) -> Fields | None:
    """Where a config states how its weights are stored: at the top, or in its text part; None where it does not."""
    fields = Fields(config)
    name = "quantization" if fields.has("quantization") else "quantization_config"
    text = config.get("text_config")
    if not fields.has(name) and isinstance(text, Mapping) and text.get("quantization_config") is not None:
        fields = Fields(text, f"{fields.place}'s text_config")
    return fields.group(name)


def affine_layout(words: int, groups: int, inputs: int) -> Layout | None:
    """The layout that fits `words` uint32 and `groups` scales for a row of `inputs` values, or None when none does."""
    if groups < 1 or inputs % groups or words * 32 % inputs:
        return None
    layout = Layout(words * 32 // inputs, inputs // groups)
    return layout if layout.bits in AFFINE_BITS and layout.group in AFFINE_GROUPS else None


def _is_note(value: object) -> bool:
    # Converters leave scalars of their own beside the module paths (format versions, recipe names).
    return not isinstance(value, bool | Mapping)


def _override(block: Fields, path: str, value: object, default: Layout) -> Layout | None:
    if isinstance(value, bool):
        return default if value else None
    entry = block.group(path)
    assert entry is not None
    # MLX builds a named module from its entry alone: a missing width or group is the mode's, not the block's.
    return _layout(entry, Layout(_MODE_BITS, _MODE_GROUP))


def _layout(block: Fields, default: Layout | None = None) -> Layout:
    mode = block.values.get("mode", "affine")
    if mode != "affine":
        raise ConfigError(
            f"{block.place} has mode {shown(mode)}; only affine is read: convert the checkpoint with mode affine."
        )
    bits = block.integer("bits", 1, 64, default.bits if default else None)
    group = block.integer("group_size", 1, 1 << 20, default.group if default else None)
    if bits not in AFFINE_BITS:
        raise block.refusal("bits", either(AFFINE_BITS))
    if group not in AFFINE_GROUPS:
        raise block.refusal("group_size", either(AFFINE_GROUPS))
    return Layout(bits, group)
