"""A drafter's matrices rounded to few bits as they are read, on the device: it costs drafts and no token."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]
from numpy.typing import NDArray

from tensorfold.adapters.cuda.packed import as_numbers
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.application.stored_weights import Codes, Matrix

GROUP = 64
FULL_BITS = 16


class NarrowWeights:
    """A reader of slots whose dense matrices come as affine codes of `bits` in groups of 64; 0 and 16 leave them."""

    def __init__(self, reader: Any, bits: int, device: Any) -> None:
        self._reader, self._bits, self._device = reader, 0 if bits == FULL_BITS else bits, device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def matrix(self, path: str) -> Matrix:
        """The matrix of a slot, narrowed where its inputs are whole groups."""
        matrix: Matrix = self._reader.matrix(path)
        if not self._bits or isinstance(matrix.stored, Codes) or matrix.shape[1] % GROUP:
            return matrix
        words, scales, biases = narrowed(as_numbers(matrix.stored, self._device), self._bits)
        return Matrix(Codes(words, scales, biases, self._bits, GROUP, "BF16"), matrix.shape, matrix.bias)


def narrowed(values: Tensor, bits: int) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.float32]]:
    """Words uint32 [N, K * bits / 32], and scales and biases [N, K / 64] that are exact in bf16, of values [N, K].

    A code's lowest bit is the next free bit of its row's words.
    """
    rows, inputs = values.shape
    grouped = values.float().reshape(rows, inputs // GROUP, GROUP)
    low, high = grouped.amin(-1), grouped.amax(-1)
    top = 2**bits - 1
    scales = ((high - low) / top).clamp_min(1e-7).bfloat16().float()
    biases = low.bfloat16().float()
    codes = torch.round((grouped - biases[..., None]) / scales[..., None]).clamp_(0, top).to(torch.int64)
    # 32 codes fill `bits` words.
    packs = codes.reshape(rows, inputs // 32, 32)
    words = torch.zeros((rows, inputs // 32, bits + 1), dtype=torch.int64, device=values.device)
    for at in range(32):
        word, shift = divmod(at * bits, 32)
        wide = packs[..., at] << shift
        words[..., word] |= wide & 0xFFFFFFFF
        words[..., word + 1] |= wide >> 32
    whole = words[..., :bits].reshape(rows, -1).cpu().numpy().astype(np.uint32)
    return whole, scales.cpu().numpy(), biases.cpu().numpy()
