"""Grouped-query attention over pages: a fused projection, one launch that places rows, one or two that read keys.

Decoded rows and a prompt's rows have arithmetic of their own, each the same in every company and for every span. Knows
no lane beyond the slots, pages and positions it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly, Pairs
from tensorfold.adapters.cuda.blocks.rope import turns_of
from tensorfold.adapters.cuda.key_pages import KeyPages
from tensorfold.adapters.cuda.rows import Chunk, Rows, Tensor
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import Attention, Norm
from tensorfold.kernels.triton.attention import Form, attend_rows, form_of, launched, plan, scratch_for
from tensorfold.kernels.triton.move_keys import move_keys
from tensorfold.kernels.triton.place_rows import HeadForm, place_rows, place_span
from tensorfold.kernels.triton.prompt_attention import attend_span, prompt_form

WIDEST, EVEN = 256, 8
_ON_HOST = (8, 227 << 10, False)
_SAME_CHAINS = (8, 9, 12)
"""Compute capabilities, their first part, whose products have one order: 8 and 12 have one instruction for all, the two
of 9 agreed wherever they were compared. Of 10 and 11 nothing is known; the interpreter's products differ by size."""


class AttentionBlock:
    """Attention over every key, or those of a sliding window, with pools of pages of its own."""

    def __init__(self, assembly: Assembly, plan: Attention, path: str) -> None:
        _refuse(plan, path)
        self._plan = plan
        processors, memory, same_chains = _card(assembly.device)
        self._form = form_of(plan.heads, plan.kv_heads, plan.head_dim, plan.window, memory, same_chains=same_chains)
        self._spans = prompt_form(plan.head_dim, memory)
        self._programs, self._lanes = processors * self._form.resident, assembly.room.lanes - 1
        self._project = assembly.products.linear(f"{path}.q", f"{path}.k", f"{path}.v")
        self._out = assembly.products.linear(f"{path}.out")
        self._head = _head_form(assembly, plan, path)
        self._pages = KeyPages(
            assembly.room.pages, plan.kv_heads, plan.head_dim, plan.window, assembly.dtype, assembly.device
        )
        # Layers of one form have one plan a round, which the first of them makes.
        alike = (block for block in assembly.keyed if isinstance(block, AttentionBlock) and block._form == self._form)
        self._planner: AttentionBlock = next(alike, self)
        self._planned: tuple[Rows, Tensor] | None = None
        assembly.keep_keys(self, plan, path)

    def decode(self, x: Tensor, at: Rows) -> Tensor:
        """Rows [R, D] to [R, D]; their keys and values go to their slots."""
        form, planned = self._launched(at), self._plan_of(at)
        pages, projected = self._pages, self._project.decode(x)
        query = self._queries(x)
        place_rows(
            form, self._head, projected, at.positions, at.lanes, at.slots, at.table, pages.keys, pages.values, query
        )
        mixed = torch.empty_like(query)
        attend_rows(
            form, query, pages.keys, pages.values, at.table, at.lanes, at.lengths, at.committed, at.path,
            scratch_for(form, planned, query), mixed, self._plan.scale, self._programs, *self._gate(projected),
        )  # fmt: skip
        return self._out.decode(mixed.reshape(at.count, -1))

    def prompt(self, x: Tensor, at: Chunk) -> Tensor:
        """Rows [T, D] of a span to [T, D]."""
        pages, projected = self._pages, self._project.prompt(x)
        query = self._queries(x)
        place_span(self._form, self._head, projected, at.positions, at.start, at.table, pages.keys, pages.values, query)
        mixed = torch.empty_like(query)
        attend_span(
            self._spans, query, pages.keys, pages.values, at.table, at.start, mixed, self._plan.scale,
            self._plan.window, *self._gate(projected),
        )  # fmt: skip
        return self._out.prompt(mixed.reshape(at.count, -1))

    def _launched(self, at: Rows) -> Form:
        """The form of a launch of so many rows."""
        return launched(self._form, at.count, self._lanes)

    def _plan_of(self, at: Rows) -> Tensor:
        """The plan of a round's rows: made by the first layer of this form, in each round, before its projection."""
        planner = self._planner
        if planner is self or planner._planned is None or planner._planned[0] is not at:
            planner = self
            form = self._launched(at)
            self._planned = at, plan(form, at.lanes, at.lengths, at.committed, at.path)
        assert planner._planned is not None
        return planner._planned[1]

    def _queries(self, x: Tensor) -> Tensor:
        return x.new_empty((x.shape[0], self._plan.heads, self._plan.head_dim))

    def _gate(self, projected: Tensor) -> tuple[Tensor | None, tuple[int, int]]:
        """Where the output gate lies in the projection: behind each head's query."""
        width = self._plan.head_dim
        if not self._plan.output_gate:
            return None, (0, 0)
        return projected[:, width:], (projected.shape[1], 2 * width)

    def move(self, moves: Tensor, table: Tensor) -> None:
        """Bring kept rows' keys and values to their own positions, in lanes whose pages `table` lists."""
        move_keys(moves, table, self._pages.keys, self._pages.values)

    def copy_pages(self, pairs: Pairs) -> None:
        """Whole pages, (from, to) each."""
        self._pages.copy(pairs)

    def export(self, pages: Sequence[int], length: int) -> tuple[bytes, ...]:
        """Keys, then values, of the first `length` positions of a lane's pages, or the newest window of them."""
        return self._pages.export(pages, length)

    def load(self, pages: Sequence[int], parts: Sequence[bytes], length: int) -> None:
        """Write them into a lane's pages. Raises ValueError on a wrong size."""
        self._pages.load(pages, parts, length)


def _refuse(plan: Attention, path: str) -> None:
    norms = [norm for norm in (plan.q_norm, plan.k_norm) if norm is not None]
    unread = plan.softcap or plan.values_from_keys or plan.v_norm is not None
    if unread or any(norm.layer or not norm.weight or norm.groups != 1 for norm in norms):
        raise RefusedError(f"The CUDA backend has no attention of this form yet ({path}); update TensorFold.")
    if plan.head_dim > WIDEST or plan.head_dim % EVEN:
        raise RefusedError(
            f"{path} has heads of {plan.head_dim:,} dimensions; the CUDA backend reads up to {WIDEST}, "
            f"in steps of {EVEN}."
        )


def _head_form(assembly: Assembly, plan: Attention, path: str) -> HeadForm:
    """What happens to heads between the projection and attention."""

    def weight(norm: Norm | None, name: str) -> Tensor | None:
        if norm is None:
            return None
        return torch.from_numpy(assembly.weights.floats(f"{path}.{name}")).to(assembly.device).contiguous()

    return HeadForm(
        q_norm=weight(plan.q_norm, "q_norm"),
        k_norm=weight(plan.k_norm, "k_norm"),
        q_eps=0.0 if plan.q_norm is None else plan.q_norm.eps,
        k_eps=0.0 if plan.k_norm is None else plan.k_norm.eps,
        turns=None if plan.rope is None else turns_of(plan.rope, assembly.device),
        factor=1.0 if plan.rope is None else plan.rope.attention_factor,
        interleaved=plan.rope is not None and plan.rope.interleaved,
        gated=plan.output_gate,
    )


@cache
def _card(device: Any) -> tuple[int, int, bool]:
    """Multiprocessors of a device, the shared memory that one block may have, and whether products have one order."""
    if torch.device(device).type != "cuda":
        return _ON_HOST
    found = torch.cuda.get_device_properties(device)
    return int(found.multi_processor_count), int(found.shared_memory_per_block_optin), found.major in _SAME_CHAINS
