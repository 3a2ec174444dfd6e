"""Draws on the device: each row's settings in buffers of one address, filled by one copy, and the sampler's kernels.

A graph captured over `draw` serves any mixture of rows. Knows no lane and no ticket; which token a row draws is the
rule of `domain.sampling` and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
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
        self._fields = [_fields(host.numpy(), rows) for host in self._hosts]
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
        wide, real, narrow = self._fields[self._turn]
        narrow[:] = 0
        # Rows of one stream have one setting: a window is written as a few slices, not row by row.
        for sampling, group in groupby(enumerate(draws), key=_setting):
            if sampling is None:
                continue
            alike = [(row, draw) for row, draw in group if draw is not None]
            part = slice(alike[0][0], alike[-1][0] + 1)
            seed, divisor, reach, top_k = _numbers(sampling)
            wide[0, part] = seed
            wide[1, part] = [draw.position for _, draw in alike]
            real[2, part] = divisor
            real[3, part] = sampling.top_p
            real[4, part] = reach
            narrow[0, part] = GREEDY if sampling.greedy else SAMPLED
            narrow[1, part] = top_k
            narrow[2, part] = [draw.mask is not None for _, draw in alike]
        self._device.copy_(self._hosts[self._turn], non_blocking=True)
        if event is not None:
            event.record()


def _setting(draw: tuple[int, RowDraw | None]) -> Sampling | None:
    return None if draw[1] is None else draw[1].sampling


@lru_cache(maxsize=64)
def _numbers(s: Sampling) -> tuple[int, float, float, int]:
    """The seed's 64 bits, the temperature times -1, how far a min-p reaches, and a top-k, as rows hold them."""
    seed = s.seed & (2**64 - 1)
    divisor = -1.0 if s.greedy else -min(_MOST, max(_LEAST, s.temperature))
    reach = -min(0.0, math.log(s.min_p)) if s.min_p > 0.0 else math.inf
    return seed - 2**64 if seed >= 2**63 else seed, divisor, reach, min(max(s.top_k, 0), 2**31 - 1)


def _fields(host: NDArray[np.int64], rows: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """A host block's numbers of 8 bytes, the same as floats, and those of 4 bytes: [numbers, rows] each."""
    wide = host[: _WIDE * rows].reshape(_WIDE, rows)
    narrow = host[_WIDE * rows :].view(np.int32)[: _NARROW * rows].reshape(_NARROW, rows)
    return wide, wide.view(np.float64), narrow


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
