# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Keys and values of kept rows of a tree brought to the slots of their own positions.

A lane's moves ascend and go to lower slots, so no move reads what an earlier one wrote: many are read, then written.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.attention import held, padded
from tensorfold.kernels.triton.row_plan import launches

Tensor = Any
_PAGE = tl.constexpr(512)


@triton.jit(**launches("moves", "table", "count", "most_pages"))
def _move(
    moves, table, key_pages, value_pages, count, most_pages, groups: tl.constexpr, width: tl.constexpr,
    dims: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    group, dim = tl.program_id(0), tl.arange(0, dims)
    for first in range(0, count, block):
        move = first + tl.arange(0, block)
        real = move < count
        pages = table + tl.load(moves + 3 * move, mask=real, other=0).to(tl.int64) * most_pages
        source, target = (
            tl.load(moves + 3 * move + 1, mask=real, other=0), tl.load(moves + 3 * move + 2, mask=real, other=0)
        )  # fmt: skip
        source_page = tl.load(pages + source // _PAGE, mask=real, other=0).to(tl.int64)
        target_page = tl.load(pages + target // _PAGE, mask=real, other=0).to(tl.int64)
        read = ((source_page * _PAGE + source % _PAGE) * groups + group) * width
        written = ((target_page * _PAGE + target % _PAGE) * groups + group) * width
        keys = tl.load(key_pages + read[:, None] + dim[None, :], mask=held(real, dim, width, dims))
        values = tl.load(value_pages + read[:, None] + dim[None, :], mask=held(real, dim, width, dims))
        tl.debug_barrier()
        tl.store(key_pages + written[:, None] + dim[None, :], keys, mask=held(real, dim, width, dims))
        tl.store(value_pages + written[:, None] + dim[None, :], values, mask=held(real, dim, width, dims))
        tl.debug_barrier()


def move_keys(moves: Tensor, table: Tensor, key_pages: Tensor, value_pages: Tensor) -> None:
    """`moves` int32 [M, 3]: lane slot, source and destination slot, ascending within a lane, destinations lower.

    `table` int32 [lanes, pages of a lane]; pools [pages, 512, G, D].
    """
    groups, width = key_pages.shape[2:]
    _move[(groups,)](
        moves, table, key_pages, value_pages, moves.shape[0], table.shape[1], groups, width, padded(width), 16,
        num_warps=4,
    )  # fmt: skip
