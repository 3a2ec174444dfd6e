"""Reads one stored weight from its headers: which tensors it consists of, how it is stored, and that its shapes fit.

Never reads a value. Whatever a header or config states that does not fit is a ConfigError sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorfold.domain.families.fields import ConfigError, clipped, either
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
from tensorfold.domain.families.tensors import Source, TensorMap, Weight

Headers = Mapping[str, TensorHeader]
Shape = tuple[int, ...]
OWN = "fetch it again or check that config.json is its own"


@dataclass(frozen=True, slots=True)
class Module:
    """Tensor names of one stored weight; `scales` and `biases` when affine, `bias` where there is one, else empty."""

    weight: str
    scales: str = ""
    biases: str = ""
    bias: str = ""

    def tensors(self) -> tuple[str, ...]:
        """The names that are there."""
        return tuple(name for name in (self.weight, self.scales, self.biases, self.bias) if name)


@dataclass(frozen=True, slots=True)
class Stored:
    """A module that was found: its tensors, its storage, and whether its last two axes are stored swapped."""

    module: Module
    storage: Storage
    swapped: bool


def weight_name(name: str, source: Source) -> str:
    """The tensor that holds a source's values or codes."""
    return f"{name}.weight" if source.module else name


class ModuleReader:
    """Reads modules of one checkpoint for one tensor map."""

    def __init__(self, table: TensorMap, tensors: Headers, quantization: Quantization | None) -> None:
        self._table, self._tensors, self._quantization = table, tensors, quantization

    def read(self, weight: Weight, source: Source, name: str, shape: Shape) -> Stored:
        """The module of that name, whose stored logical shape must be `shape`. Raises ConfigError."""
        affine, stated = self._stated(source, name)
        values = weight_name(name, source)
        bias = self._bias(name, weight.bias_shape(shape)) if weight.bias else ""
        if affine:
            module = Module(values, f"{name}.scales", f"{name}.biases", bias)
            return Stored(module, self._affine(weight, module, shape, stated), swapped=source.transposed)
        storage, swapped = self._dense(weight, source, values, shape)
        return Stored(Module(values, bias=bias), storage, swapped)

    def _stated(self, source: Source, name: str) -> tuple[bool, Layout | None]:
        scales = f"{name}.scales"
        affine = source.module and scales in self._tensors
        if self._quantization is None:
            named, layout = True, None
        else:
            named, layout = self._quantization.stated(self._paths(name))
        if named and affine != (layout is not None):
            # With no block at all the config says of every module that it is plain.
            says, has = ("not ", "has") if affine else ("", "lacks")
            raise ConfigError(f"config.json says that {name} is {says}quantized, but the checkpoint {has} {scales}.")
        return affine, layout

    def _paths(self, name: str) -> tuple[str, ...]:
        # Overrides are keyed by the module path of the converter's model, whose prefix may differ from the file's.
        bare = next((name.removeprefix(p) for p in self._table.prefixes if p and name.startswith(p)), name)
        return tuple(dict.fromkeys((name, *(prefix + bare for prefix in self._table.prefixes), bare)))

    def _dense(self, weight: Weight, source: Source, name: str, shape: Shape) -> tuple[Dense, bool]:
        header = self._header(name, ("I64",) if weight.rule == "integer" else FLOAT_DTYPES)
        swapped = weight.rule == "conv" and header.shape == (shape[0], shape[2], shape[1]) != shape
        if header.shape != shape and not swapped:
            raise _misshapen(header, shape)
        return Dense(header.dtype), swapped or source.transposed

    def _affine(self, weight: Weight, module: Module, shape: Shape, stated: Layout | None) -> Affine:
        if weight.rule not in ("matrix", "router"):
            raise ConfigError(f"{module.weight} is quantized, which this tensor must not be; use another conversion.")
        codes = self._header(module.weight, ("U32",))
        scales = self._header(module.scales, FLOAT_DTYPES)
        biases = self._header(module.biases, (scales.dtype,))
        alike = len({len(shape), len(codes.shape), len(scales.shape)}) == 1 and biases.shape == scales.shape
        layout = affine_layout(codes.shape[-1], scales.shape[-1], shape[-1]) if alike else None
        if layout is None or not codes.shape[:-1] == scales.shape[:-1] == shape[:-1]:
            raise ConfigError(
                f"{module.weight} has codes {_dims(codes.shape)}, scales {_dims(scales.shape)} and biases "
                f"{_dims(biases.shape)}, which is no affine form of {_dims(shape)}; {OWN}."
            )
        if stated is not None and stated != layout:
            raise ConfigError(
                f"config.json states {stated.bits} bits in groups of {stated.group} for {module.weight}, but its shape "
                f"is that of {layout.bits} bits in groups of {layout.group}; {OWN}."
            )
        self._check_taken(weight, module.weight, layout)
        return Affine(layout.bits, layout.group, scales.dtype)

    def _check_taken(self, weight: Weight, name: str, layout: Layout) -> None:
        bits = self._table.router_bits if weight.rule == "router" else self._table.bits
        if layout.bits not in bits or layout.group not in self._table.groups:
            raise ConfigError(
                f"{name} is stored in {layout.bits} bits in groups of {layout.group}; this model is read in "
                f"{either(bits)} bits in groups of {either(self._table.groups)}: use such a conversion."
            )

    def _bias(self, name: str, shape: Shape) -> str:
        header = self._header(f"{name}.bias", FLOAT_DTYPES)
        if header.shape != shape:
            raise _misshapen(header, shape)
        return header.name

    def _header(self, name: str, dtypes: tuple[str, ...]) -> TensorHeader:
        header = self._tensors.get(name)
        if header is None:
            raise ConfigError(f"The checkpoint lacks {name}; {OWN}.")
        if header.dtype not in dtypes:
            raise ConfigError(f"{name} has dtype {clipped(header.dtype)}; it must be {either(dtypes)}.")
        return header


def _misshapen(header: TensorHeader, shape: Shape) -> ConfigError:
    return ConfigError(f"{header.name} has shape {_dims(header.shape)}; config.json makes it {_dims(shape)}.")


def _dims(shape: Shape) -> str:
    return clipped(str(list(shape)))
