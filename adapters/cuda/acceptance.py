"""The kept paths of a launch, found on the device before the host has read a draw: buffers of one address around them.

A launch that is queued behind another one reads `kept` there. The host's answer is `domain.verification`'s; whoever
uses a path from here compares the two.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.domain.windows import Window
from tensorfold.kernels.triton.acceptance import FIELDS, accept_windows

MOST_STOPS = 16
"""Stop tokens of a window that the device looks for; a window with more of them is not followed past its first row."""


class WindowPaths:
    """Paths of up to `windows` windows of at most `width` rows each, `rows` in all.

    `kept` int32 [windows, 2 + W]: rows that stand, the next pending token, then those rows; W is `width` rounded up to
    a power of two.
    """

    def __init__(self, windows: int, width: int, rows: int, device: Any) -> None:
        self._windows, self._rows = windows, rows
        size = windows * (FIELDS + MOST_STOPS) + 2 * rows
        pinned = torch.device(device).type == "cuda"
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=pinned)
        self._copied = torch.cuda.Event() if pinned else None
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self.kept: Tensor = torch.zeros(
            (windows, 2 + (1 << (width - 1).bit_length())), dtype=torch.int32, device=device
        )

    def send(self, windows: Sequence[tuple[Window, int, Collection[int]]]) -> None:
        """The windows of a launch, one after another: each with its room and its stop tokens."""
        if self._copied is not None:
            self._copied.synchronize()
        fields, stops, tokens, parents = _parted(self._host.numpy(), self._windows, self._rows)
        fields[:] = (0, 1, 0, 1)
        stops[:] = -1
        at = 0
        for number, (window, room, ends) in enumerate(windows):
            followed = room if len(ends) <= MOST_STOPS else 1
            fields[number] = (at, len(window), window.forced, min(max(followed, 0), 2**31 - 1))
            stops[number, : min(len(ends), MOST_STOPS)] = sorted(ends)[:MOST_STOPS]
            tokens[at : at + len(window)] = window.tokens
            parents[at : at + len(window)] = window.parents
            at += len(window)
        self._device.copy_(self._host, non_blocking=True)
        if self._copied is not None:
            self._copied.record()

    @property
    def tokens(self) -> Tensor:
        """Tokens int32 of the windows sent, one after another."""
        return _parted(self._device, self._windows, self._rows)[2]

    def follow(self, draws: Tensor) -> Tensor:
        """Queue the search in `draws` int32 [rows]; `kept`, whose rows past the windows sent mean nothing."""
        fields, stops, tokens, parents = _parted(self._device, self._windows, self._rows)
        accept_windows(fields, tokens, parents, draws, stops, self.kept)
        return self.kept


def _parted(block: Any, windows: int, rows: int) -> tuple[Any, Any, Any, Any]:
    fields, stops = windows * FIELDS, windows * (FIELDS + MOST_STOPS)
    return (
        block[:fields].reshape(windows, FIELDS),
        block[fields:stops].reshape(windows, MOST_STOPS),
        block[stops : stops + rows],
        block[stops + rows :],
    )
