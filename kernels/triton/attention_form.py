"""How decode attention over heads of one shape is cut: into tiles of (row, head) pairs, partitions and key tiles.

A launch's tile follows from how many rows it has, and how many lanes a model. Only `step`, `parts` and `least` decide
bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import triton  # type: ignore[import-not-found, unused-ignore]


@dataclass(frozen=True, slots=True)
class Form:
    """How attention over heads of one shape is cut.

    `tile` (row, head) pairs are multiplied by `step` keys at once, `parts` is the most partitions of a row, `least` the
    fewest steps of one: these but `tile` decide bits. `few` is the tile of launches whose pairs fit into one of it, and
    `large` that of launches whose rows do not fit into one `tile`; 0 where there is none. Tiles have so many rows with
    all heads of a key head, or more rows with a share of them: one of `split`. `stages` of keys are under way at once,
    `resident` programs work on one multiprocessor.
    """

    heads: int
    groups: int
    width: int
    window: int = 0
    tile: int = 64
    step: int = 64
    parts: int = 32
    warps: int = 4
    stages: int = 3
    resident: int = 1
    few: int = 0
    large: int = 0
    least: int = 1
    split: int = 1

    @property
    def shared(self) -> int:
        """Query heads of one key head."""
        return self.heads // self.groups

    @property
    def per_tile(self) -> int:
        """Rows of a launch in one tile."""
        return self.tile // (self.shared // self.split)

    @property
    def dims(self) -> int:
        """Dims of a head in a product: no fewer than one takes, and a power of two."""
        return padded(self.width)

    @property
    def row_scratch(self) -> int:
        """Bytes of scratch that each row of a launch takes."""
        return 4 * self.heads * self.parts * (self.width + 2)


def padded(width: int) -> int:
    """The dims that a product takes for heads of `width`."""
    return max(16, int(triton.next_power_of_2(width)))


def form_of(
    heads: int, groups: int, width: int, window: int = 0, memory: int = 227 << 10, *, same_chains: bool = True
) -> Form:
    """The form of these heads on a card whose blocks may have `memory` bytes of shared memory.

    `same_chains`: whether products of few rows and of many add in the same order there.
    """
    shared = heads // groups
    tile = max(64, triton.next_power_of_2(shared))
    parts = min(64, max(8, triton.next_power_of_2(128 // groups + 1) // 2))
    wide, roomy = width > 128, memory >= 227 << 10
    step, warps = (32, 4) if wide and not roomy else (64, 8 if wide else 4)
    buffer, query = 4 * step * padded(width), 2 * tile * padded(width)
    stages = 3 if query + 2 * buffer + (8 << 10) <= memory else 2
    resident = 2 if 2 * (query + (stages - 1) * buffer + (8 << 10)) <= memory else 1
    few = 16 if same_chains and shared <= 16 else 0
    large = 128 if same_chains and wide and roomy and tile == 64 else 0
    return Form(heads, groups, width, window, tile, step, parts, warps, stages, resident, few, large)


def launched(form: Form, rows: int, lanes: int = 1) -> Form:
    """The form in which a launch of so many rows runs: few pairs in a smaller tile, many in a larger one.

    `lanes` is the most lanes that rows are of. A tile holds rows of one lane alone: its even share of them. The bits
    are the same: all sums over keys are chains of the matrix unit, whichever of its instructions makes them
    (`python -m tests.benchmarks.gpu --part attention` compares them on a card).
    """
    share = -(-rows // lanes)
    if form.few and share * form.shared <= form.few:
        return replace(form, tile=form.few, warps=4, few=0, large=0)
    if form.large and share > form.per_tile:
        # A warpgroup has 64 pairs of its own. Two copies of keys fit beside the queries.
        large = replace(form, tile=form.large, warps=8, stages=2, resident=1, few=0, large=0)
        return replace(large, split=_split(large, share))
    return form


def _split(form: Form, rows: int) -> int:
    """The fewest shares of heads of which all `rows` fit into one tile, where these are fewer than tiles of whole rows.

    64 rows of 6 heads are three tiles of 128 pairs, two heads of all rows each; by whole rows they are four. Rows
    across a length at which partitions grow are two runs, for which that is slower: 64 of them once in 2,048 keys.
    """
    fits = (n for n in range(2, form.shared + 1) if form.shared % n == 0 and rows * form.shared // n <= form.tile)
    split = next(fits, 1)
    return split if split < -(-rows // form.per_tile) else 1
