"""Stored matrices into the blocks that the row kernel streams (see `kernels/cuda/affine_pack.py`), on their device.

Codes and bf16 numbers keep their values. Codes of 2 and 3 bits become codes of 4, groups of 128 become two of 64 with
the same scale and bias. Knows no slot and no file.
"""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.cuda.affine_pack import GROUP, block_words

Tensor = Any
TILE = 16
_AT_ONCE = 1 << 24
"""Codes unpacked at a time: a packing's scratch is about ten times as many bytes."""


def packed_width(bits: int) -> int:
    """The width that codes of `bits` have in a packed matrix."""
    return max(4, bits)


def tiles_of(outputs: int) -> int:
    """Tiles of 16 outputs, the last filled up."""
    return -(-outputs // TILE)


def new_blocks(outputs: int, inputs: int, bits: int, device: Any) -> Tensor:
    """Room for a packed matrix: int32 [tiles, K / 64, words]; `bits` 4, 5, 6, 8 or 16."""
    return torch.empty((tiles_of(outputs), inputs // GROUP, block_words(bits)), dtype=torch.int32, device=device)


def pack_codes(words: Tensor, scales: Tensor, biases: Tensor, bits: int, blocks: Tensor) -> None:
    """Fill `blocks` from int32 `words` [N, K * bits / 32] with bf16 `scales` and `biases` [N, K / 64 or K / 128]."""
    groups = blocks.shape[1]
    step = max(1, _AT_ONCE // (groups * GROUP * TILE)) * TILE
    repeat = groups // scales.shape[1]
    for start in range(0, len(words), step):
        part = slice(start, start + step)
        codes = _filled_up(_unpacked(words[part], bits))
        pairs = _bits(scales[part]) & 0xFFFF | _bits(biases[part]) << 16
        tiles = slice(start // TILE, start // TILE + len(codes) // TILE)
        blocks[tiles] = _blocks(codes, _filled_up(pairs.repeat_interleave(repeat, 1)), packed_width(bits))


def pack_bf16(values: Tensor, blocks: Tensor) -> None:
    """Fill `blocks` from bf16 `values` [N, K]."""
    groups = blocks.shape[1]
    step = max(1, _AT_ONCE // (groups * GROUP * TILE)) * TILE
    for start in range(0, len(values), step):
        words = _filled_up(values[start : start + step].contiguous().view(torch.int32))
        # tile, h, r, group, q, s, pair -> tile, group, s, r, q, pair, h
        parts = words.reshape(-1, 2, 8, groups, 4, 4, 2).permute(0, 3, 5, 2, 4, 6, 1)
        blocks[start // TILE : start // TILE + len(parts)] = parts.reshape(len(parts), groups, -1)


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int16).int()


def _filled_up(rows: Tensor) -> Tensor:
    missing = -len(rows) % TILE
    return rows if not missing else torch.nn.functional.pad(rows, (0, 0, 0, missing))


def _unpacked(words: Tensor, bits: int) -> Tensor:
    """Codes uint8 [N, K] of rows that are one little-endian stream of bits each."""
    if 32 % bits == 0:
        shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
        return (words[..., None] >> shifts).bitwise_and_((1 << bits) - 1).to(torch.uint8).reshape(len(words), -1)
    units = words.reshape(len(words), -1, bits)  # 32 codes lie in `bits` whole words
    codes = torch.empty((len(words), units.shape[1], 32), dtype=torch.uint8, device=words.device)
    for code in range(32):
        word, shift = divmod(code * bits, 32)
        value = units[..., word] >> shift
        if shift + bits > 32:  # the sign fills what the next word has
            value = value & (1 << (32 - shift)) - 1 | units[..., word + 1] << (32 - shift)
        codes[..., code] = value & (1 << bits) - 1
    return codes.reshape(len(words), -1)


def _blocks(codes: Tensor, pairs: Tensor, bits: int) -> Tensor:
    """Blocks [tiles, groups, words] of codes [N, K] and of int32 `pairs` of scale and bias [N, K / 64]."""
    groups = pairs.shape[1]
    # tile, h, r, group, q, s, pair, half -> tile, group, r, q, pair, h, half, s
    parts = codes.reshape(-1, 2, 8, groups, 4, 4, 2, 2).permute(0, 3, 2, 4, 6, 1, 7, 5)
    parts = parts.reshape(len(parts), groups, 32, 4, 2, 4)
    pieces = [_halves(_fields(parts & 15, 4)), *_plane(parts >> 4, bits)]
    pieces.append(pairs.reshape(-1, 2, 8, groups).permute(0, 3, 2, 1))
    return torch.cat([piece.reshape(len(parts), groups, -1) for piece in pieces], 2)


def _plane(above: Tensor, bits: int) -> tuple[Tensor, ...]:
    """The bits above the low four: `above` is [tile, group, lane, word, half, step]."""
    if bits == 8:
        return (_halves(_fields(above, 4)),)
    if bits == 4:
        return ()
    # 5: one word a lane, a bit at 4 * word + step; 6: a word for each two, two bits at 2 * (4 * (word & 1) + step)
    words = 1 if bits == 5 else 2
    rows = above.reshape(*above.shape[:3], words, 4 // words, 2, 4).transpose(4, 5).flatten(5)
    return (_halves(_fields(rows, bits - 4)),)


def _fields(parts: Tensor, width: int) -> Tensor:
    """The last axis as fields of `width` bits of one number, the first lowest."""
    made = parts[..., 0].int()
    for at in range(1, parts.shape[-1]):
        made = made | parts[..., at].int() << at * width
    return made


def _halves(parts: Tensor) -> Tensor:
    """The last axis, low and high, as one word."""
    return parts[..., 0] | parts[..., 1] << 16
