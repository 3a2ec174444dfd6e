"""Tilings of the kernel that decodes weights into shared memory (`staged_rows.cu`, compute capability 9.0).

It multiplies up to 64 rows at once and keeps no x: where parts of K are long, `wide_rows.cu` keeps x of 32 rows alone,
and has to go through the weights twice. Parts of K decide bits, and they are those of `affine_rows.cu`; all else is a
`StagedTiling`. Knows shapes and bytes, not tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.kernels.cuda.affine_pack import block_words

STAGED_ROWS = 64  # rows that are multiplied at once
STAGED_PART = 24  # groups of a part of K from which this was faster
_STATIC = 2 * 1024  # the most that barriers and the alignment of stages take beside the dynamic memory
_X_BYTES = STAGED_ROWS * 128  # of 64 inputs
_DECODERS, _SETS = 8, 2  # warps that decode, and sets of them that take groups in turn
_MOST, _ONE = 25, 16  # sixteens of outputs whose sums have room in registers of two warpgroups, and of one


@dataclass(frozen=True, slots=True)
class StagedTiling:
    """How the work is laid out, which changes no bit.

    Sixteens of outputs of a tile, warpgroups that multiply, blocks of a cluster, each with one part of K, groups that a
    warp has on their way, and stages of decoded groups.
    """

    sixteens: int
    warpgroups: int
    blocks: int
    slots: int
    stages: int

    @property
    def threads(self) -> int:
        """Threads of a block: warpgroups that multiply, and the warps that fetch and decode."""
        return 128 * self.warpgroups + 32 * _DECODERS

    @property
    def macros(self) -> dict[str, int]:
        """What is fixed of it while compiling."""
        outputs = 16 * self.sixteens // self.warpgroups
        macros = {"N": outputs, "NQ": outputs // 8, "LAST": outputs // 8 - 1, "C": self.warpgroups}
        macros |= {"PARTS": self.blocks, "SLOTS": self.slots, "STAGES": self.stages}
        return macros | {"DECODERS": _DECODERS, "SETS": _SETS}


def staged_bytes(bits: int, tiling: StagedTiling) -> int:
    """Dynamic shared memory of a block: stages of weights and x, and each decoding warp's ring of codes."""
    stages = tiling.stages * (tiling.sixteens * 2048 + _X_BYTES)
    return stages + _DECODERS * tiling.slots * -(-tiling.sixteens * _SETS // _DECODERS) * block_words(bits) * 4


def staged_tiling(outputs: int, groups: int, parts: int, multiprocessors: int, most_shared: int) -> StagedTiling | None:
    """The tiling of 4-bit codes that was fastest where it was measured, or the next that fits; None where none does.

    Every cluster has one tile, so that its blocks' sums meet once. `parts` are the matrix's parts of K, and blocks of a
    cluster: of 16 clusters of eight that the multiprocessors are enough for, an H200 runs 15 at a time. A card that
    runs fewer takes a second round of them, with the same bits.
    """
    sixteens = -(-outputs // 16)
    each = -(-sixteens // max(1, multiprocessors // parts * 15 // 16))
    if groups < parts or each > _MOST:
        return None
    warpgroups = 1 if each <= _ONE else 2
    for stages, slots in ((4, 4), (4, 3), (4, 2), (3, 4), (3, 3), (3, 2), (2, 2)):
        made = StagedTiling(each, warpgroups, parts, slots, stages)
        if staged_bytes(4, made) <= most_shared - _STATIC:
            return made
    return None
