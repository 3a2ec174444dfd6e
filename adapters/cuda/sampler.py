"""Draws on the device: each row's settings in buffers of one address, filled by one copy, and the sampler's kernels.

A graph captured over `draw` serves any mixture of rows. Knows no lane and no ticket; which token a row draws is the
rule of `domain.sampling` and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.domain.sampling import Sampling
from tensorfold.kernels.triton.sampler import GREEDY, SAMPLED, Rules, Scratch, draw_rows, scratch

TURNS = 3
_WIDE, _NARROW = 5, 3  # numbers of 8 and of 4 bytes that a row has
_LEAST, _MOST = 1e-6, 1e200  # temperatures, as the domain holds them


@dataclass(frozen=True, slots=True)
class RowDraw:
    """What one row draws: the token at `position`, by `sampling`, among the ids that a packed `mask` allows."""

    position: int
    sampling: Sampling
    mask: NDArray[np.uint32] | None = None


class DrawRules:
    """The settings of up to `rows` rows on the device; `send` fills them without waiting for the device."""

    def __init__(self, rows: int, device: Any) -> None:
        self.rows = rows
        wide, narrow = _WIDE * rows, _NARROW * rows + _NARROW * rows % 2
        size = wide + narrow // 2
        pinned = torch.device(device).type == "cuda"
        self._device = torch.zeros(size, dtype=torch.int64, device=device)
        self._hosts = [torch.zeros(size, dtype=torch.int64, pin_memory=pinned) for _ in range(TURNS)]
        self._copied: list[Any] = [torch.cuda.Event() if pinned else None for _ in range(TURNS)]
        self._turn = 0
        whole = self._device[:wide].view(_WIDE, rows)
        parts = self._device[wide:].view(torch.int32)[: _NARROW * rows].view(_NARROW, rows)
        real = whole.view(torch.float64)
        self.rules = Rules(
            kinds=parts[0],
            seeds=whole[0],
            divisors=real[2],
            top_ks=parts[1],
            top_ps=real[3],
            reaches=real[4],
            positions=whole[1],
            masked=parts[2],
        )

    def send(self, draws: Sequence[RowDraw | None]) -> None:
        """Fill the rows of `draws`; None: not drawn. Rows behind them are not drawn either."""
        self._turn = (self._turn + 1) % TURNS
        event = self._copied[self._turn]
        if event is not None:
            event.synchronize()
        host: NDArray[np.int64] = self._hosts[self._turn].numpy()
        wide = host[: _WIDE * self.rows].reshape(_WIDE, self.rows)
        real = wide.view(np.float64)
        narrow = host[_WIDE * self.rows :].view(np.int32)[: _NARROW * self.rows].reshape(_NARROW, self.rows)
        narrow[:] = 0
        for row, draw in enumerate(draws):
            if draw is None:
                continue
            s = draw.sampling
            seed = s.seed & (2**64 - 1)
            wide[0, row] = seed - 2**64 if seed >= 2**63 else seed
            wide[1, row] = draw.position
            real[2, row] = -1.0 if s.greedy else -min(_MOST, max(_LEAST, s.temperature))
            real[3, row] = s.top_p
            real[4, row] = -min(0.0, math.log(s.min_p)) if s.min_p > 0.0 else math.inf
            narrow[0, row] = GREEDY if s.greedy else SAMPLED
            narrow[1, row] = min(max(s.top_k, 0), 2**31 - 1)
            narrow[2, row] = draw.mask is not None
        self._device.copy_(self._hosts[self._turn], non_blocking=True)
        if event is not None:
            event.record()


class Sampler:
    """Draws of up to `rows` rows over `vocabulary` ids. `tokens` int32 [rows] holds the last ones."""

    def __init__(self, rows: int, vocabulary: int, device: Any) -> None:
        self._rules = DrawRules(rows, device)
        self._words = -(-vocabulary // 32)
        self._rows, self._device = rows, device
        self._masks = torch.zeros((rows, self._words), dtype=torch.int32, device=device)
        self._scratch = make_scratch(rows, device)
        self.tokens: Tensor = torch.full((rows,), -1, dtype=torch.int32, device=device)

    def send(self, draws: Sequence[RowDraw | None]) -> None:
        """What the next `draw` draws: a setting for each row, None where none is drawn."""
        masked = [(row, draw.mask) for row, draw in enumerate(draws) if draw is not None and draw.mask is not None]
        if masked:
            self._send_masks(masked)
        self._rules.send(draws)

    def _send_masks(self, masked: Sequence[tuple[int, NDArray[np.uint32]]]) -> None:
        for row, mask in masked:
            words = np.ascontiguousarray(mask, "<u4").view(np.int32)[: self._words]
            # Pageable memory: the copy is made of the host's own buffer before this returns.
            self._masks[row, : len(words)].copy_(torch.from_numpy(words.copy()), non_blocking=True)

    def draw(self, logits: Tensor) -> Tensor:
        """The draws int32 [R] of float32 `logits` [R, V], -1 for rows that are not drawn."""
        rows = logits.shape[0]
        tokens = self.tokens[:rows]
        draw_rows(logits, self._rules.rules, self._scratch, tokens, self._masks)
        return tokens


def make_scratch(rows: int, device: Any) -> Scratch:
    """The kernels' scratch for up to `rows` rows."""
    return scratch(rows, lambda shape, kind: torch.zeros(shape, dtype=kind, device=device), torch)
