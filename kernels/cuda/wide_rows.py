"""Tilings of the warpgroup kernel (`wide_rows.cu`, compute capability 9.0): many rows times a matrix of 4-bit codes.

Parts of K decide bits, and they are those of `affine_rows.cu`; all else is a `WideTiling`, which moves work. Knows
shapes and bytes, not tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tensorfold.kernels.cuda.affine_pack import block_words

ARCHITECTURE = "sm_90a"  # warpgroup products exist for this one alone
TILE = 64  # outputs of a warpgroup
STATIC = 3 * 1024  # the most that barriers and the alignment of x take beside the dynamic memory


@dataclass(frozen=True, slots=True)
class WideTiling:
    """How the work is laid out, which changes no bit as long as blocks * columns is the same.

    Tiles of 8 rows a pass, warpgroups, blocks of a cluster and parts of K in a block, warps that add up, groups a copy,
    copies in flight a warpgroup.
    """

    row_tiles: int
    warpgroups: int
    blocks: int
    columns: int
    adders: int
    copy: int
    slots: int

    @property
    def meetings(self) -> int:
        """Tiles whose parts may be under way: as many as warpgroups work on."""
        return max(1, self.warpgroups // self.columns)

    @property
    def threads(self) -> int:
        """Threads of a block: the warps that multiply, those that add up and one that fetches."""
        return 128 * self.warpgroups + 32 * self.adders + 32

    @property
    def macros(self) -> dict[str, int]:
        """What is fixed of it while compiling."""
        macros = {"NT": self.row_tiles, "G": self.warpgroups, "S": self.blocks, "C": self.columns}
        return macros | {"MEETINGS": self.meetings, "ADDERS": self.adders}


def block_groups(groups: int, tiling: WideTiling) -> int:
    """The most groups of 64 inputs that a block keeps of x."""
    parts = tiling.blocks * tiling.columns
    starts = [groups * rank * tiling.columns // parts for rank in range(tiling.blocks + 1)]
    return max(after - before for before, after in pairwise(starts))


def wide_bytes(groups: int, bits: int, tiling: WideTiling) -> int:
    """Dynamic shared memory of a block: x, the rings, and what meets and is sent."""
    ring = tiling.warpgroups * tiling.slots * tiling.copy * block_words(bits) * 16
    x = block_groups(groups, tiling) * tiling.row_tiles * 1024
    tile = TILE * 8 * tiling.row_tiles * 4
    kept = max(1, tiling.columns // tiling.warpgroups)
    return ring + x + (tiling.meetings * tiling.columns + tiling.warpgroups * kept) * tile


def wide_tiling(outputs: int, groups: int, parts: int, rows: int, most_shared: int) -> WideTiling | None:
    """The tiling of 4-bit codes that was fastest where it was measured, or the next that fits; None where none does.

    `parts` are the matrix's parts of K. 64 rows a pass and a third warpgroup pay for themselves where they leave room
    for copies that are not short.
    """
    part = -(-groups // parts)
    forms = ((8, 2, 3, 4), (4, 3, 2, 5), (4, 2, 2, 1))
    for row_tiles, warpgroups, adders, shortest in forms[0 if rows > 32 else 1 :]:
        for copies in range(1, part + 1):
            copy = -(-part // copies)
            made = WideTiling(row_tiles, warpgroups, parts, 1, adders, copy, 2)
            if copy >= min(shortest, part) and wide_bytes(groups, 4, made) <= most_shared - STATIC:
                return made
    return None
