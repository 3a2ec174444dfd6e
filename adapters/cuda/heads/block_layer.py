"""One layer of a block drafter: attention and MLP, each between two short convolutions whose kernels depend on the row.

Rows of a block see each other both ways unless the drafter is causal, and the kept tokens closer than its window.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.blocks.norm import NormBlock
from tensorfold.adapters.cuda.blocks.rope import turns_of
from tensorfold.adapters.cuda.blocks.swiglu import SwigluBlock
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import Attention, SwiGLU
from tensorfold.domain.families.plans import DFlashDrafter
from tensorfold.kernels.triton.draft_block import Heads, Rings, mix_rows, place_block, read_block


@dataclass(frozen=True, slots=True)
class BlockRows:
    """B blocks of `length` rows: `positions` int32 [B * L], `lanes` and `starts` int32 [B] (ring, first position)."""

    length: int
    positions: Tensor
    lanes: Tensor
    starts: Tensor


class BlockLayer:
    """Layer `index` of a drafter."""

    def __init__(self, assembly: Assembly, plan: DFlashDrafter, index: int) -> None:
        attention, mlp = plan.layers[index]
        assert isinstance(attention.op, Attention)
        assert isinstance(mlp.op, SwiGLU)
        assert attention.pre_norm is not None
        assert mlp.pre_norm is not None
        paths = [f"layers.{index}.{sublayer.name}" for sublayer in (attention, mlp)]
        self._plan, self._index = plan, index
        self.heads = heads_of(assembly, attention.op, paths[0])
        self._attention_norm = NormBlock(assembly, attention.pre_norm, f"{paths[0]}.pre_norm")
        self._project = assembly.products.linear(*(f"{paths[0]}.{name}" for name in "qkv"), prompts=False)
        self._out = assembly.products.linear(f"{paths[0]}.out", prompts=False)
        self._attention_mix = BlockConv(assembly, plan, f"{paths[0]}.mix")
        self._mlp_norm = NormBlock(assembly, mlp.pre_norm, f"{paths[1]}.pre_norm")
        self._mlp = SwigluBlock(assembly, mlp.op, paths[1])
        self._mlp_mix = BlockConv(assembly, plan, f"{paths[1]}.mix")

    def __call__(self, stream: Tensor, made: Tensor | None, at: BlockRows, rings: Rings) -> tuple[Tensor, Tensor]:
        """The residual [B * L, D] before the MLP is added, and what the MLP made; `made` is added to `stream` first."""
        normed, stream = self._attention_norm(stream, made)
        kernels = self._attention_mix.kernels(normed)
        rows = self._attend(self._attention_mix(normed, kernels, 0, at.length), at, rings)
        made = self._attention_mix(self._out.decode(rows), kernels, 1, at.length)
        normed, stream = self._mlp_norm(stream, made)
        kernels = self._mlp_mix.kernels(normed)
        rows = self._mlp.decode(self._mlp_mix(normed, kernels, 0, at.length), None)
        return stream, self._mlp_mix(rows, kernels, 1, at.length)

    def _attend(self, rows: Tensor, at: BlockRows, rings: Rings) -> Tensor:
        form, count = self.heads, len(rows)
        query = rows.new_empty((count, form.heads, form.width))
        keys, values = (rows.new_empty((count, form.groups, form.width)) for _ in range(2))
        place_block(form, self._project.decode(rows), at.positions, query, keys, values)
        mixed = torch.empty_like(query)
        read_block(form, query, keys, values, rings, self._index, at.lanes, at.starts, self._plan.causal, mixed)
        return mixed.reshape(count, -1)


class BlockConv:
    """Row r is mixed from rows r, r - 1, ... of its block, with kernels that are a base plus a projection of the row.

    Two branches share one projection: before and after the op. Before the block's first row there is nothing.
    """

    def __init__(self, assembly: Assembly, plan: DFlashDrafter, path: str) -> None:
        self._taps = plan.conv_taps
        if self._taps:
            base = torch.from_numpy(assembly.weights.floats(f"{path}.base"))
            self._base = base.float().to(assembly.device).contiguous()
            self._projection = assembly.products.linear(f"{path}.projection", prompts=False)

    def kernels(self, rows: Tensor) -> Tensor | None:
        """What the rows add to the base; None where the drafter has no convolutions."""
        made: Tensor | None = self._projection.decode(rows) if self._taps else None
        return made

    def __call__(self, rows: Tensor, kernels: Tensor | None, branch: int, length: int) -> Tensor:
        """The mixed rows of one branch."""
        if kernels is None:
            return rows
        out = torch.empty_like(rows)
        mix_rows(rows, self._base, kernels, branch, length, out)
        return out


def heads_of(assembly: Assembly, plan: Attention, path: str) -> Heads:
    """What happens to a layer's heads. Raises RefusedError for a form that is not read here."""
    if plan.q_norm is None or plan.k_norm is None or plan.rope is None or plan.rope.interleaved or plan.qkv_bias:
        raise RefusedError("The CUDA backend has no drafter of this form yet; start with --drafter none.")

    def weight(name: str) -> Tensor:
        return torch.from_numpy(assembly.weights.floats(f"{path}.{name}")).float().to(assembly.device).contiguous()

    return Heads(
        heads=plan.heads,
        groups=plan.kv_heads,
        width=plan.head_dim,
        scale=plan.scale,
        eps=plan.q_norm.eps,
        q_norm=weight("q_norm"),
        k_norm=weight("k_norm"),
        turns=turns_of(plan.rope, assembly.device),
        factor=plan.rope.attention_factor,
    )
