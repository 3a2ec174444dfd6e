"""A checkpoint's slots as float64 arrays in their logical shapes, whatever form the file stores them in.

Reads exactly what binding says, one slot when it is asked for; it is written apart from every backend's loader.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.binding import Bound, bind
from tensorfold.domain.families.centring import stored_around_zero
from tensorfold.domain.families.storage import Affine, TensorHeader, parse_quantization
from tensorfold.domain.families.stored_modules import Module
from tensorfold.domain.families.tensors import TensorMap, matches
from tensorfold.kernels.reference.affine import dequantize
from tests.synthetic.safetensors_file import Stored, as_values

Floats = NDArray[np.float64]
_RAW: Mapping[str, str] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "U32": "<u4", "I64": "<i8"}


@dataclass(slots=True)
class SlotReader:
    """Slots of one checkpoint by path; `[path]` gives values, and `bias(path)` what stands beside them."""

    folder: Path
    headers: Mapping[str, TensorHeader]
    bound: Mapping[str, Bound]
    probes: str
    _kept: dict[str, NDArray[Any]] = field(default_factory=dict)
    _around_zero: bool | None = None

    @staticmethod
    def of(folder: Path, table: TensorMap) -> SlotReader:
        """The slots of a table in a folder; side files that are there are read with their prefix."""
        config: Mapping[str, Any] = json.loads((folder / "config.json").read_text())
        sides = {side.name: side.prefix for side in table.side_files}
        headers: dict[str, TensorHeader] = {}
        for path in sorted(folder.glob("*.safetensors")):
            headers |= read_headers(path, sides.get(path.name, ""))
        return SlotReader(folder, headers, bind(table, headers, parse_quantization(config)), table.probes)

    def __contains__(self, path: object) -> bool:
        return path in self.bound

    def __getitem__(self, path: str) -> NDArray[Any]:
        """The slot's logical values. Raises KeyError for a slot the checkpoint lacks."""
        if path not in self._kept:
            self._kept[path] = self._read(self.bound[path])
        return self._kept[path]

    def put(self, path: str, values: NDArray[Any]) -> None:
        """Let a slot hold other values than the file's."""
        self._kept[path] = values

    def bias(self, path: str) -> Floats | None:
        """The ordinary bias beside a slot's module."""
        found = self.bound[path]
        return self._tensor(found.module.bias) if found.module.bias else None

    def _read(self, found: Bound) -> NDArray[Any]:
        pieces = [self._values(found, module) for module in found.modules]
        made = np.stack(pieces) if "{e}" in found.source.name else pieces[0]
        if found.swapped:
            made = np.swapaxes(made, -1, -2)
        if found.source.view:
            made = made.reshape(found.source.view)
        if found.source.cut is not None:
            made = np.take(made, range(*found.source.cut), axis=found.source.axis)
        if found.source.takes_log:
            made = np.log(made)
        if found.add_one or (found.add_one is None and self._stored_around_zero()):
            made = made + 1.0
        if made.shape != found.slot.shape:
            raise ValueError(f"{found.module.weight} became {made.shape}, not {found.slot.shape}")
        return made

    def _values(self, found: Bound, module: Module) -> NDArray[Any]:
        if not isinstance(found.storage, Affine):
            return self._tensor(module.weight)
        scales, biases = self._tensor(module.scales), self._tensor(module.biases)
        return dequantize(self._raw(module.weight), scales, biases, found.storage.bits, found.storage.group)

    def _stored_around_zero(self) -> bool:
        if self._around_zero is None:
            slots = [found for path, found in self.bound.items() if matches(self.probes, path)]
            self._around_zero = stored_around_zero([float(self._tensor(s.module.weight).mean()) for s in slots])
        return self._around_zero

    def _tensor(self, name: str) -> NDArray[Any]:
        header = self.headers[name]
        raw = self._raw(name)
        return raw if header.dtype == "I64" else as_values(Stored(header.dtype, raw))

    def _raw(self, name: str) -> NDArray[Any]:
        header = self.headers[name]
        kind = np.dtype(_RAW[header.dtype])
        count = header.nbytes // kind.itemsize
        return np.fromfile(self.folder / header.file, kind, count, offset=header.begin).reshape(header.shape)


def read_headers(path: Path, prefix: str = "") -> dict[str, TensorHeader]:
    """The headers of one safetensors file, names behind `prefix`."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        stated = json.loads(file.read(length))
    found = {}
    for name, entry in stated.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            full = prefix + name
            found[full] = TensorHeader(full, entry["dtype"], tuple(entry["shape"]), path.name, begin, end)
    return found
