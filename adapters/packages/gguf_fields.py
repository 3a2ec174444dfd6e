"""Reads the fields of a GGUF header one by one from a hostile file.

Nothing is allocated before it is known to be there. All numbers are little-endian. Metadata values have thirteen
types; arrays hold one type and are never nested here.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

from tensorfold.application.ports.checkpoints import RefusedError

Scalar = int | float | bool | str
Value = Scalar | list[Scalar]

MOST_HEADER_BYTES = 64 << 20
MOST_STRING_BYTES = 1 << 20
MOST_ARRAY_VALUES = 1 << 20

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_STRING_LENGTH_BYTES = 8


class GgufFields:
    """A cursor over the header of `file`, which has `size` bytes; `label` begins every refusal."""

    def __init__(self, file: BinaryIO, size: int, label: str) -> None:
        self._file = file
        self._end = min(size, MOST_HEADER_BYTES)
        self._size = size
        self._label = label
        self.position = 0

    def refusal(self, what: str) -> RefusedError:
        """A refusal of this file."""
        return RefusedError(f"{self._label} {what}.")

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises RefusedError when the file or the header's limit ends before them."""
        if count > self._end - self.position:
            limit = f"its {self._size} bytes" if self._end == self._size else f"the {self._end} bytes read of a header"
            raise self.refusal(f"states {count} bytes at byte {self.position}, past {limit}")
        data = self._file.read(count)
        if len(data) != count:
            raise self.refusal(f"ended at byte {self.position} while it was being read")
        self.position += count
        return data

    def u32(self) -> int:
        """An unsigned 32-bit number."""
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        """An unsigned 64-bit number."""
        return int.from_bytes(self.take(8), "little")

    def string(self) -> str:
        """A string: its length in bytes, then UTF-8. Raises RefusedError when it is long or not UTF-8."""
        length = self.u64()
        if length > MOST_STRING_BYTES:
            raise self.refusal(f"states a string of {length} bytes, more than {MOST_STRING_BYTES}")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.refusal(f"has a string before byte {self.position} that is not UTF-8") from None

    def value(self, key: str) -> Value:
        """A metadata value: its type, then its bytes."""
        kind = self.u32()
        return self._array(key) if kind == _ARRAY else self._scalar(kind, key)

    def _scalar(self, kind: int, key: str) -> Scalar:
        if kind == _STRING:
            return self.string()
        if kind not in _NUMBERS:
            raise self.refusal(f"gives {key} the value type {kind}, which is unknown")
        number = struct.Struct("<" + _NUMBERS[kind])
        value: Scalar = number.unpack(self.take(number.size))[0]
        return value

    def _array(self, key: str) -> list[Scalar]:
        kind, count = self.u32(), self.u64()
        if count > MOST_ARRAY_VALUES:
            raise self.refusal(f"states {count} values in {key}, more than {MOST_ARRAY_VALUES}")
        if kind == _STRING:
            # Each string takes at least its length field: a count the file cannot hold fails here.
            if count * _STRING_LENGTH_BYTES > self._end - self.position:
                raise self.refusal(f"states {count} strings in {key}, more than its bytes can hold")
            return [self.string() for _ in range(count)]
        if kind not in _NUMBERS:
            raise self.refusal(f"gives {key} an array of the value type {kind}, which is not read")
        size = struct.calcsize("<" + _NUMBERS[kind])
        return list(struct.unpack(f"<{count}{_NUMBERS[kind]}", self.take(count * size)))
