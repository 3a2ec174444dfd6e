# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Packed blocks (see `kernels/cuda/affine_pack.py`) back into numbers: whole matrices for prompts, rows for embeddings.

A number is scale * code + bias in float32, rounded once to the result's dtype: the product of a code of up to 8 bits
and a bf16 scale is exact, so a fused addition makes no other number.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow

Tensor = Any
_INPUTS = 256
"""Inputs a program decodes, for 16 outputs."""


@triton.jit
def _upper_half(word):
    """The bf16 number in the upper half of a word, in float32."""
    return (word & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _numbers(blocks, block, output, place, inside, bits: tl.constexpr):
    """Float32 numbers of outputs 0 to 15 (`output`) and inputs 0 to 63 (`place`) of blocks that begin at word `block`.

    `output` and `place` are broadcast against each other, so what hangs on one of them is computed once.
    """
    h = output // 8
    lane = output % 8 * 4 + place // 16
    step, pair, half = place % 16 // 4, place % 4 // 2, place % 2
    if bits == 16:
        word = tl.load(blocks + (block + lane * 4 + step * 128 + pair * 2 + h), mask=inside, other=0)
        return _upper_half(word << (1 - half) * 16)
    word = tl.load(blocks + (block + lane * 4 + pair * 2 + h), mask=inside, other=0)
    shift = 4 * step + 16 * half
    code = word >> shift & 15
    if bits == 5:
        high = tl.load(blocks + (block + 128 + lane), mask=inside, other=0)
        code |= (high >> (pair * 8 + step + 16 * half) + h * 4 & 1) << 4
    if bits == 6:
        high = tl.load(blocks + (block + 128 + lane * 2 + pair), mask=inside, other=0)
        code |= (high >> (step * 2 + 16 * half) + h * 8 & 3) << 4
    if bits == 8:
        high = tl.load(blocks + (block + 128 + lane * 4 + pair * 2 + h), mask=inside, other=0)
        code |= (high >> shift & 15) << 4
    plane: tl.constexpr = (bits - 4) * 32
    both = tl.load(blocks + (block + (128 + plane) + output % 8 * 2 + h), mask=inside, other=0)
    return code.to(tl.float32) * _upper_half(both << 16) + _upper_half(both)


@triton.jit
def _dequantize(
    blocks, out, used, tiles, groups, words: tl.constexpr, bits: tl.constexpr, inputs: tl.constexpr, gated: tl.constexpr
):
    tile = tl.program_id(0).to(tl.int64)
    if tl.load(used + tile // tiles) == 0:
        return
    place = tl.program_id(1) * inputs + tl.arange(0, inputs)
    inside = place < groups * 64
    output = tl.arange(0, 16)
    block = (tile * groups + place // 64) * words
    value = _numbers(blocks, block[None, :], output[:, None], place[None, :] % 64, inside[None, :], bits)
    if gated:  # four rows of a gate and four of what it opens in turn: first all of the one, then all of the other
        row = (tile + tile // tiles * tiles) * 8 + output // 8 * 4 + output % 4 + output % 8 // 4 * tiles * 8
    else:
        row = tile * 16 + output
    at = row[:, None] * groups * 64 + place[None, :]
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside[None, :])


@triton.jit
def _look_up(
    blocks, ids, out, groups, words: tl.constexpr, bits: tl.constexpr, inputs: tl.constexpr, early: tl.constexpr
):
    begin(early)
    row = tl.program_id(0).to(tl.int64)
    chosen = tl.load(ids + row).to(tl.int64)
    place = tl.program_id(1) * inputs + tl.arange(0, inputs)
    inside = place < groups * 64
    block = (chosen // 16 * groups + place // 64) * words
    value = _numbers(blocks, block, (chosen % 16).to(tl.int32), place % 64, inside, bits)
    tl.store(out + row * groups * 64 + place, value.to(out.dtype.element_ty), mask=inside)


def dequantize(blocks: Tensor, bits: int, out: Tensor, used: Tensor, gated: bool = False) -> None:
    """`out` [E, N16, K] from the blocks int32 [E * N16 / 16, K / 64, words] of E matrices of N16 outputs each.

    `used` int32 [E]: a matrix of none is left as it was. `bits` 4, 5, 6, 8, or 16 for bf16 numbers. Matrices that are
    `gated`, whose outputs are four of a gate and four of what it opens in turn, get the rows of the gate first.
    """
    tiles, groups, words = blocks.shape
    grid = (tiles, triton.cdiv(groups * 64, _INPUTS))
    _dequantize[grid](blocks, out, used, tiles // len(used), groups, words, bits, _INPUTS, gated, num_warps=4)


def look_up(blocks: Tensor, bits: int, ids: Tensor, out: Tensor) -> None:
    """`out` [R, K]: rows `ids` [R] of the matrix that `blocks` int32 [tiles, K / 64, words] hold."""
    _, groups, words = blocks.shape
    grid = (len(ids), triton.cdiv(groups * 64, 512))
    _look_up[grid](blocks, ids, out, groups, words, bits, 512, num_warps=4, **follow(out))
