"""Rows through the experts they chose: grouped products of a round's rows, and of a prompt's rows sorted by expert.

Whoever else chose an expert moves work, never bits. Sums over a row's slots are float32, slot after slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.expert_parts import PackedStack, first_names, foldable, pack_stack, shared_parts
from tensorfold.adapters.cuda.packed import kind
from tensorfold.adapters.cuda.packing import TILE
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.stored_weights import Stored
from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, SwiGLU
from tensorfold.kernels.cuda.affine_rows import MOST_PAIRS, ExpertLaunch
from tensorfold.kernels.triton.dequantize import dequantize
from tensorfold.kernels.triton.expert_items import list_items
from tensorfold.kernels.triton.norms import combine, gated_silu, squared_relu
from tensorfold.kernels.triton.prompt_experts import multiply_groups, sort_pairs, spread_rows, sum_slots

if TYPE_CHECKING:
    from tensorfold.adapters.cuda.products import Products

Tensor = Any
Lists = tuple[Tensor, Tensor, Tensor]
LISTS_APART = 8 * MOST_PAIRS


class Choice(NamedTuple):
    """What rows chose: `ids` int32 [R, k] of entries, best first, and their `weights` float32 [R, k].

    `lists`: items and members of the grouped products of each `MOST_PAIRS` // k rows, where the choice has made them.
    """

    ids: Tensor
    weights: Tensor
    lists: tuple[Lists, ...] | None = None


def new_lists(device: Any, count: int = 1) -> tuple[Lists, ...]:
    """Room for items, members by row and members by pair of `count` launches (see `kernels/triton/expert_items.py`).

    Those of a launch begin `LISTS_APART` numbers behind those of the one before.
    """
    whole = torch.empty((count, LISTS_APART), dtype=torch.int32, device=device)
    items, by_row, by_pair = whole.split((4 * MOST_PAIRS, 2 * MOST_PAIRS, 2 * MOST_PAIRS), 1)
    return tuple(zip(items, by_row, by_pair, strict=True))


class ExpertStack:
    """Every expert's matrices, of which each row passes those it chose.

    `folded` says how many slots behind the chosen ones the shared expert takes: its parts are the entries behind the
    last expert, in order, and their weight is 1. 0: it is not among them.
    """

    def __init__(self, products: Products, plan: MixtureOfExperts, path: str) -> None:
        check_activation(plan.expert, path)
        self._products, self._plan = products, plan.expert
        self.folded = _folded(products, plan, path)
        count, names = plan.router.experts, first_names(plan.expert)
        shared = [shared_parts(products, path, name, self.folded) for name in (*names, "down")] if self.folded else []
        self._up = pack_stack(products, path, names, list(zip(*shared[:-1], strict=True)), count)
        self._down = pack_stack(products, path, ("down",), [(part,) for part in shared[-1]] if shared else [], count)
        slots = plan.router.chosen + self.folded
        self._together = products.expect_experts(self._up.matrix, self._down.matrix, slots)
        self._launches: dict[tuple[int, int], tuple[ExpertLaunch, ExpertLaunch]] = {}
        products.count_room(max(self._at_once(stack) * _values(stack) for stack in (self._up, self._down)))

    def decode(self, x: Tensor, choice: Choice, dtype: Any = torch.float32) -> Tensor:
        """[R, N] in `dtype` of a round's rows [R, K] and their choice of entries."""
        ids, weights, lists = choice
        x, slots = x.contiguous(), ids.shape[1]
        out = torch.empty((len(x), self._down.matrix.outputs), dtype=dtype, device=x.device)
        step = self._together
        if step < MOST_PAIRS // slots:
            lists = None  # those of the choice are of more rows
        for number, start in enumerate(range(0, len(x), step)):
            part = slice(start, start + step)
            self._decode(x[part], ids[part], weights[part], lists[number] if lists else None, out[part])
        return out

    def prompt(self, x: Tensor, choice: Choice, dtype: Any = torch.float32) -> Tensor:
        """The same of a prompt's rows, in the prompt's arithmetic."""
        ids, weights, _ = choice
        entries = len(self._up.blocks)
        tiles = self._products.expert_tiles()
        _, places, used, table = sort_pairs(ids, entries, tiles.m)
        rows = spread_rows(x, places, ids.shape[1])
        square = isinstance(self._plan, FeedForward)
        made = self._grouped(self._up, rows, used, table, square)
        hidden = made if square else self._activated(made)
        down = self._grouped(self._down, hidden, used, table, False)
        out = torch.empty((len(x), down.shape[1]), dtype=dtype, device=x.device)
        sum_slots(down, places, weights, out)
        return out

    def _decode(self, x: Tensor, ids: Tensor, weights: Tensor, lists: Lists | None, out: Tensor) -> None:
        products, pairs = self._products, ids.numel()
        if lists is None:
            (lists,) = new_lists(x.device)
            list_items(ids, *lists)
        items, by_row, by_pair = lists
        up, down = self._launch(len(x), pairs)
        way = products.stream(), products.early
        made = x.new_empty((pairs, self._up.matrix.outputs))
        addresses = self._up.blocks.data_ptr(), x.data_ptr(), made.data_ptr()
        up(*addresses, items.data_ptr(), by_row.data_ptr(), *way)
        hidden = self._activated(made)
        each = torch.empty((pairs, self._down.matrix.outputs), dtype=torch.float32, device=x.device)
        addresses = self._down.blocks.data_ptr(), hidden.data_ptr(), each.data_ptr()
        down(*addresses, items.data_ptr(), by_pair.data_ptr(), *way)
        combine(each, weights, out)

    def _launch(self, rows: int, pairs: int) -> tuple[ExpertLaunch, ExpertLaunch]:
        if (rows, pairs) not in self._launches:
            make = self._products.rows.experts
            up, down = make(self._up.matrix, rows, pairs), make(self._down.matrix, pairs, pairs, wide=True)
            self._launches[rows, pairs] = (up, down)
        return self._launches[rows, pairs]

    def _activated(self, made: Tensor) -> Tensor:
        hidden = made.new_empty((len(made), self._down.matrix.inputs))
        (gated_silu if isinstance(self._plan, SwiGLU) else squared_relu)(made, hidden)
        return hidden

    def _grouped(self, stack: PackedStack, rows: Tensor, used: Tensor, table: Tensor, square: bool) -> Tensor:
        """Sorted rows times their matrices, so many of which are unpacked at a time as there is room for."""
        products, matrix = self._products, stack.matrix
        out = rows.new_empty((len(rows), matrix.outputs))
        step = self._at_once(stack)
        for first in range(0, len(stack.blocks), step):
            blocks = stack.blocks[first : first + step]
            outputs = blocks.shape[1] * TILE
            w = products.unpacked(len(blocks) * outputs * matrix.inputs, rows.dtype)
            w = w.view(len(blocks), outputs, matrix.inputs)
            last = first + len(blocks)
            dequantize(blocks.flatten(0, 1), matrix.bits, w, used[first:last])
            multiply_groups(rows, w, out, table, (first, last), products.expert_tiles(), square)
        return out

    def _at_once(self, stack: PackedStack) -> int:
        return max(1, min(len(stack.blocks), self._products.stack_bytes // (2 * _values(stack))))


def check_activation(plan: SwiGLU | FeedForward, path: str) -> None:
    """Raise RefusedError for an MLP whose activation has no kernel here."""
    if isinstance(plan, SwiGLU) and (plan.activation != "silu" or plan.limit):
        raise RefusedError(f"{path} has the activation {plan.activation} or a limit, which the CUDA backend lacks.")
    if isinstance(plan, FeedForward) and plan.activation != "relu2":
        raise RefusedError(f"{path} has the activation {plan.activation}, which the CUDA backend lacks without a gate.")


def _folded(products: Products, plan: MixtureOfExperts, path: str) -> int:
    """How many entries the shared expert makes: none where it is stored otherwise than the experts are."""
    count = foldable(plan)
    if not count:
        return 0
    names = (*first_names(plan.expert), "down")
    for name in names:
        first: Stored = next(products.weights.entries(f"{path}.experts.{name}")).stored
        shared: Stored = products.weights.matrix(f"{path}.shared.{name}").stored
        if kind(first) != kind(shared):
            return 0
    return count


def _values(stack: PackedStack) -> int:
    return int(stack.blocks.shape[1]) * TILE * stack.matrix.inputs
