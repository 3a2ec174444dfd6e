"""Tilings of the warpgroup kernel (`wide_rows.cu`, compute capability 9.0): many rows times a matrix of 4-bit codes.

Parts of K decide bits, and they are those of `affine_rows.cu`; all else is a `WideTiling`, which moves work. Knows
shapes and bytes, not tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tensorfold.kernels.cuda.affine_pack import block_words

ARCHITECTURE = "sm_90a"  # warpgroup products exist for this one alone
TILE = 64  # outputs of a warpgroup
STATIC = 3 * 1024  # the most that barriers and the alignment of x take beside the dynamic memory


@dataclass(frozen=True, slots=True)
class WideTiling:
    """How the work is laid out, which changes no bit as long as blocks * columns is the same.

    Tiles of 8 rows a pass, warpgroups, blocks of a cluster and parts of K in a block, groups decoded side by side,
    groups a copy, copies in flight a warpgroup.
    """

    row_tiles: int
    warpgroups: int
    blocks: int
    columns: int
    beside: int
    copy: int
    slots: int

    @property
    def meetings(self) -> int:
        """Tiles whose parts may be under way: as many as warpgroups work on."""
        return max(1, self.warpgroups // self.columns)

    @property
    def threads(self) -> int:
        """Threads of a block: the warps that multiply, one that adds up and one that fetches."""
        return 128 * self.warpgroups + 64

    def macros(self, bits: int, wide: bool) -> dict[str, int]:
        """What is fixed while compiling; `wide`: float32 results."""
        macros = {"BITS": bits, "NT": self.row_tiles, "G": self.warpgroups, "S": self.blocks, "C": self.columns}
        return macros | {"AT": self.beside, "MEETINGS": self.meetings, "WIDE": int(wide)}


def block_groups(groups: int, tiling: WideTiling) -> int:
    """The most groups of 64 inputs that a block keeps of x."""
    parts = tiling.blocks * tiling.columns
    starts = [groups * rank * tiling.columns // parts for rank in range(tiling.blocks + 1)]
    return max(after - before for before, after in pairwise(starts))


def wide_bytes(groups: int, bits: int, tiling: WideTiling) -> int:
    """Dynamic shared memory of a block: x, the rings, sums of x, and what meets and is sent."""
    ring = tiling.warpgroups * tiling.slots * tiling.copy * block_words(bits) * 16
    sums = 0 if bits == 16 else tiling.row_tiles * 32
    x = block_groups(groups, tiling) * (tiling.row_tiles * 1024 + sums)
    tile = TILE * (8 * tiling.row_tiles + (0 if tiling.row_tiles % 2 else 8)) * 4
    kept = max(1, tiling.columns // tiling.warpgroups)
    return ring + x + (tiling.meetings * tiling.columns + tiling.warpgroups * kept) * tile


def wide_tiling(outputs: int, groups: int, parts: int, rows: int, most_shared: int) -> WideTiling | None:
    """The tiling of 4-bit codes that was fastest where it was measured, or the next that fits; None where none does.

    `parts` are the matrix's parts of K. 64 rows a pass pay for themselves where there are many outputs, and a third
    warpgroup where there are more.
    """
    most = (8, 4) if rows > 32 and outputs > 12288 else (4,)
    for row_tiles in most:
        for warpgroups in (3, 2) if outputs > 32768 and row_tiles == 4 else (2,):
            for copy in _copies(-(-groups // parts)):
                made = WideTiling(row_tiles, warpgroups, parts, 1, 2, copy, 2)
                if wide_bytes(groups, 4, made) <= most_shared - STATIC:
                    return made
    return None


def _copies(part: int) -> Iterator[int]:
    """Groups a copy, the longest first: a part, or an even share of it."""
    yield part
    for copies in range(2, part + 1):
        copy = -(-part // copies)
        yield copy + copy % 2
