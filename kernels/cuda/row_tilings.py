"""Matrices, how the row kernels cut K, which decides bits, and how `affine_rows.cu` lays work out, which does not.

The parts of a `Cut` are a function of the matrix alone; a `Tiling` may follow the row count and the device. Knows
shapes and bytes, no device and no launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tensorfold.kernels.cuda.affine_pack import GROUP, block_words

FEW, MANY = 2, 17  # rows up to which blocks work alone or in pairs, and from which warpgroups multiply
LARGE, HUGE = 8192, 65536  # outputs above which fewer blocks share a tile, and from which waiting for x weighs little
MOST_KEPT = 12  # groups of a part of K whose x a warp keeps in registers whole
MOST_PARTLY_KEPT = 40  # groups of a part of which a warp keeps the first: the kernel's code grows with them
BITS = (4, 5, 6, 8, 16)
_MET_ROW = 80  # bytes of a row of 16 outputs where parts meet: 4 floats more put neighbours on other banks


@dataclass(frozen=True, slots=True)
class Matrix:
    """Outputs N, inputs K and the bits of a code (16: plain bf16).

    `gated`: its outputs are four of a gate, then the four of what it opens, and so on; a row's results are
    silu(gate) * opened, of which there are N / 2. Raises ValueError for what no kernel reads.
    """

    outputs: int
    inputs: int
    bits: int
    gated: bool = False

    def __post_init__(self) -> None:
        if self.gated and self.outputs % 16:
            raise ValueError(f"{self.outputs} outputs of a gate and what it opens are not whole tiles of 16")
        if self.bits not in BITS:
            raise ValueError(f"codes of {self.bits} bits have no row kernel; these have one: {BITS}")
        if self.inputs % GROUP or self.inputs < GROUP or self.outputs < 1:
            raise ValueError(f"a matrix of {self.outputs} x {self.inputs} is not made of groups of {GROUP} inputs")

    @property
    def groups(self) -> int:
        """Groups of 64 inputs."""
        return self.inputs // GROUP

    @property
    def results(self) -> int:
        """Numbers of a row of results."""
        return self.outputs // 2 if self.gated else self.outputs


@dataclass(frozen=True, slots=True)
class Cut:
    """K in `blocks * columns` parts: a cluster of `blocks`, each with `columns` columns of warps along K."""

    blocks: int
    columns: int

    @property
    def parts(self) -> int:
        """Parts of K: the only thing that decides the order of additions."""
        return self.blocks * self.columns


@dataclass(frozen=True, slots=True)
class Tiling:
    """How the work is laid out, which changes no bit.

    Tiles of 8 rows, tiles of 16 outputs a warp, warps along outputs, groups a copy, copies in flight a warp, tiles
    whose parts may be under way, warps that add them up, and the first groups of a part whose x a warp keeps in
    registers. `early` copies are asked for before x (0: all in flight), the others when x is asked for, or when it has
    come if `behind`.
    """

    row_tiles: int
    output_tiles: int
    warps: int
    copy: int
    slots: int
    meetings: int = 2
    adders: int = 1
    kept: int = 0
    early: int = 0
    behind: bool = False

    @property
    def outputs(self) -> int:
        """Outputs of a tile."""
        return 16 * self.output_tiles * self.warps


def matrix_macros(matrix: Matrix, wide: bool) -> dict[str, int]:
    """What every row kernel has fixed of a matrix and its results while compiling; `wide`: float32 results."""
    return {"BITS": matrix.bits, "GATED": int(matrix.gated), "WIDE": int(wide)}


MIDDLE: Mapping[tuple[int, bool], tuple[Cut, Tiling]] = {
    (10, True): (Cut(2, 4), Tiling(2, 2, 2, 5, 2, 1, 3, kept=3)),
    (34, False): (Cut(8, 1), Tiling(2, 1, 8, 12, 2, 2, 3, kept=4)),
}
"""Forms of 9 to 16 rows that were faster than `tiling`'s, by the groups of a part and whether outputs are many.

Beside the sums of 16 rows, registers have room for x of a part's first 3 or 4 groups. Pairs of blocks fill more
multiprocessors than clusters of eight, and one meeting less leaves room for x of half of K.
"""


def cut(matrix: Matrix, capability: tuple[int, int]) -> Cut:
    """How K is cut for `matrix`; its parts decide the order of additions.

    Eight parts: few outputs need as many blocks a tile to fill the card, and x for many rows has room in no fewer. A
    matrix of many outputs and short rows has four, since each part costs a meeting. Below sm_90 there are no clusters:
    the warps of a block cut K.
    """
    if capability < (9, 0):
        return Cut(1, 8)
    return Cut(8 if matrix.outputs <= LARGE or matrix.groups >= 64 else 4, 1)


def few_rows(matrix: Matrix, parts: int, rows: int, multiprocessors: int) -> tuple[Cut, Tiling]:
    """How up to 8 rows of 4-bit codes were fastest on compute capability 9.0, with the same `parts` of K.

    Fewer blocks a cluster fill more multiprocessors and hold more of x, for which a launch then waits longer. Short
    parts keep x in registers, longer ones that of their first groups. Two tiles a warp halve what waits for each
    other, where they leave not many more multiprocessors idle; so do 16 warps, whose registers have room for half of x.
    """
    part = -(-matrix.groups // parts)
    if part > MOST_KEPT:
        blocks = 2 if rows <= FEW else parts
    elif rows <= FEW:
        blocks = 1
    else:
        blocks = 2 if matrix.outputs > LARGE else parts
    way = Cut(blocks, parts // blocks)
    warps = 8 // way.columns
    if part > MOST_KEPT:
        adders, kept = (1 if rows <= FEW else 2), (8 if part <= MOST_PARTLY_KEPT else 0)
        return way, Tiling(1, 1, warps, even(part, 17), 2, adders=adders, kept=kept)
    if blocks == parts:
        return way, Tiling(1, 1, warps, even(part, 17), 2)
    if rows > FEW and parts == 8 and part <= 10 and matrix.outputs < HUGE:
        half = -(-part // 2)
        return Cut(8, 1), Tiling(1, 1, 16, half, 2, 3, 3 if matrix.gated else 2, kept=half)

    def work(tiles: int) -> int:  # 16 outputs' parts that the warp with most of them multiplies
        return tiles * -(-matrix.outputs // (16 * tiles * warps) // -(-multiprocessors // blocks))

    if part <= 10 and 100 * work(2) <= 107 * work(1):
        return way, Tiling(1, 2, warps, -(-part // 2), 2, kept=part)
    copy, slots = (-(-part // 2), 3) if part <= 10 and work(1) <= 4 else (part, 2)
    return way, Tiling(1, 1, warps, copy, slots, kept=part)


def middle_rows(matrix: Matrix, parts: int) -> tuple[Cut, Tiling] | None:
    """How 9 to 16 rows of 4-bit codes were fastest on compute capability 9.0, with the same `parts` of K.

    None where nothing was faster than `tiling`'s.
    """
    form = MIDDLE.get((-(-matrix.groups // parts), matrix.outputs > LARGE))
    return form if form is not None and form[0].parts == parts else None


def even(part: int, longest: int) -> int:
    """Groups a copy: an even share of a part, so that no short copy is left over."""
    return -(-part // -(-part // longest))


def tiling(matrix: Matrix, cut: Cut, rows: int, most_shared: int) -> Tiling:
    """The tiling that was fastest where it was measured, or the next that fits `most_shared` bytes of shared memory."""
    part = -(-matrix.groups // cut.parts)
    for row_tiles in range(min(4, -(-rows // 8)), 0, -1):
        for output_tiles, longest, slots in _orders(matrix, row_tiles):
            warps, adders = max(1, 8 // cut.columns), 1 if row_tiles == 1 else 3
            made = Tiling(row_tiles, output_tiles, warps, even(part, longest), slots, 2, adders)
            if made.outputs % (16 * cut.blocks) == 0 and shared_bytes(matrix, cut, made, rows) <= most_shared - 1024:
                return made
    raise ValueError(f"{rows} rows of {matrix} do not fit {most_shared} bytes of shared memory")


def _orders(matrix: Matrix, row_tiles: int) -> tuple[tuple[int, int, int], ...]:
    """Tiles of outputs a warp, the longest copy and the copies in flight, the best first."""
    smaller = ((1, 5, 2), (1, 4, 2), (1, 3, 2), (1, 2, 2), (1, 2, 1), (1, 1, 1))
    if row_tiles == 1:
        return ((1, 17 if matrix.bits < 8 else 8, 2), (1, 10, 2), *smaller)
    if row_tiles == 2:
        wide = ((2, 5, 2),) if matrix.outputs > LARGE else ()
        return (*wide, (1, 12, 2), (1, 10, 2), *smaller)
    return smaller


def row_bytes(matrix: Matrix, cut: Cut) -> int:
    """Bytes between rows of x in shared memory: a block's part of K and 16 more, so that rows fall on other banks."""
    most = max(
        matrix.groups * (rank + 1) * cut.columns // (cut.blocks * cut.columns)
        - matrix.groups * rank * cut.columns // (cut.blocks * cut.columns)
        for rank in range(cut.blocks)
    )
    return most * GROUP * 2 + 16


def shared_bytes(matrix: Matrix, cut: Cut, tiling: Tiling, rows: int, experts: bool = False) -> int:
    """Dynamic shared memory of a block: the rings, x, and what meets and is sent.

    `rows` are those of a launch, of which a tile's lie in it; with `experts` those that a block has room for.
    """
    held = rows if experts else min(rows, 8 * tiling.row_tiles)
    tiles = tiling.warps * cut.columns * tiling.output_tiles
    ring = tiles * tiling.slots * tiling.copy * block_words(matrix.bits) * 4
    meeting = tiles * 8 * tiling.row_tiles * _MET_ROW
    return ring + held * row_bytes(matrix, cut) + (1 if cut.blocks == 1 else 2) * tiling.meetings * meeting


def expert_rows(matrix: Matrix, tiling: Tiling, rows: int, pairs: int, clusters: int) -> int:
    """The most rows of x that a block of one of `clusters` keeps, whoever chose which expert: all, or its items'.

    A cluster's tiles are neighbours, an item has 1 to 8 members, and each pair is a member of one item.
    """
    each, most = -(-matrix.outputs // tiling.outputs), 1
    for items in range(-(-pairs // 8), pairs + 1):
        touched = min((-(-items * each // clusters) - 1) // each + 2, items)
        most = max(most, min(8 * touched, pairs - items + touched))
    return min(rows, most)
