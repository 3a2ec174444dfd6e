"""Keys and values of one attention layer in pages of 512 positions, which lanes hold by number.

Invariant: every number in a pool is finite. What no lane wrote is zero, what is written by rows is finite already, and
what is loaded is made so: a key tile that rows share may hold keys that some of them weigh by zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.rows import PAGE, Tensor

_AT_ONCE = 32  # pages that pass through device memory together on their way to the host and back


class KeyPages:
    """Pools `keys` and `values` [pages, 512, G, D]. `window` tokens of a lane, if not 0, are all that is kept of it."""

    def __init__(self, pages: int, groups: int, width: int, window: int, dtype: Any, device: Any) -> None:
        if pages * PAGE >= 1 << 31:
            raise ValueError(f"{pages:,} pages; a pool has fewer than {(1 << 31) // PAGE:,}")
        shape = (pages, PAGE, groups, width)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self._window, self._row = window, (groups, width)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Whole pages, (from, to) each; no page is both."""
        for source, target in pairs:
            self.keys[target].copy_(self.keys[source])
            self.values[target].copy_(self.values[source])

    def export(self, pages: Sequence[int], length: int) -> tuple[bytes, ...]:
        """Keys, then values, of a lane's last tokens [tokens, G, D]: all of `length`, or a window of them."""
        return tuple(self._read(pool, pages, length) for pool in (self.keys, self.values))

    def load(self, pages: Sequence[int], parts: Sequence[bytes], length: int) -> None:
        """Write what `export` gave into a lane's pages. Raises ValueError on a wrong size."""
        size = (length - self._first(length)) * self._row[0] * self._row[1] * self.keys.element_size()
        if [len(part) for part in parts] != [size, size]:
            sizes = " and ".join(str(len(part)) for part in parts)
            raise ValueError(f"a layer's buffers of {sizes} bytes; {length} tokens have {size}")
        for pool, part in zip((self.keys, self.values), parts, strict=True):
            self._write(pool, pages, part, length)

    def _first(self, length: int) -> int:
        return max(0, length - self._window) if self._window else 0

    def _spans(self, length: int) -> Iterator[tuple[int, int]]:
        """The kept positions in spans of whole pages."""
        at = self._first(length)
        while at < length:
            end = min(length, (at // PAGE + _AT_ONCE) * PAGE)
            yield at, end
            at = end

    def _read(self, pool: Tensor, pages: Sequence[int], length: int) -> bytes:
        first = self._first(length)
        host = torch.empty((length - first, *self._row), dtype=pool.dtype)
        for start, end in self._spans(length):
            held = pool[list(pages[start // PAGE : -(-end // PAGE)])].reshape(-1, *self._row)
            from_page = start % PAGE
            host[start - first : end - first].copy_(held[from_page : from_page + end - start])
        data: bytes = host.reshape(-1).view(torch.uint8).numpy().tobytes()
        return data

    def _write(self, pool: Tensor, pages: Sequence[int], part: bytes, length: int) -> None:
        first = self._first(length)
        host = torch.from_numpy(np.frombuffer(part, np.uint8).copy()).view(pool.dtype).reshape(-1, *self._row)
        for start, end in self._spans(length):
            rows = torch.nan_to_num(host[start - first : end - first].to(pool.device))
            at = 0
            while at < end - start:
                page, offset = divmod(start + at, PAGE)
                count = min(PAGE - offset, end - start - at)
                pool[pages[page], offset : offset + count].copy_(rows[at : at + count])
                at += count
