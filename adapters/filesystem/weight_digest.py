"""Names a checkpoint's weights for caches, cheaply.

The digest is the SHA-256 of config.json's bytes and, for every weight file in name order: its name, its size, the
SHA-256 of its header, and for its sampled tensors the (at most) 4 KiB around their middle. Up to 4,096 tensors are
sampled, every k-th where there are more. So another architecture, quantization, fine-tune, or shard layout gives
another digest; an edit that touches no sampled byte does not, and nobody may take the digest for a proof of content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from tensorfold.domain.families.storage import TensorHeader

SAMPLES = 4096
SAMPLE_BYTES = 4096


class Readable(Protocol):
    """A file whose bytes can be read at any offset."""

    name: str
    size: int

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`."""
        ...


class WeightDigest:
    """Built up file by file, in name order; `tensors` is the checkpoint's whole count."""

    def __init__(self, config: bytes, tensors: int) -> None:
        self._hash = hashlib.sha256(b"tensorfold weights 1\0")
        self._add(hashlib.sha256(config).digest())
        self._stride = max(1, -(-tensors // SAMPLES))
        self._seen = 0

    def add_file(self, file: Readable, header_digest: bytes, tensors: Sequence[TensorHeader]) -> None:
        """Add one file; reads its samples."""
        self._add(file.name.encode())
        self._add(str(file.size).encode())
        self._add(header_digest)
        for tensor in tensors:
            if self._seen % self._stride == 0:
                length = min(SAMPLE_BYTES, tensor.nbytes)
                self._add(file.read(tensor.begin + (tensor.nbytes - length) // 2, length))
            self._seen += 1

    def hexdigest(self) -> str:
        """The name, 64 hexadecimal characters."""
        return self._hash.hexdigest()

    def _add(self, part: bytes) -> None:
        self._hash.update(len(part).to_bytes(8, "little"))
        self._hash.update(part)
