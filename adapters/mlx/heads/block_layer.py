"""One layer of a block drafter: attention and MLP, each between two short convolutions whose kernels depend on the row.

Rows of a block see each other both ways unless the drafter is causal, and the kept tokens closer than its window. How
rows of a block round matters to no reply, so plain products do here.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.attention import HeadProjections
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import norm_block
from tensorfold.adapters.mlx.blocks.swiglu import SwigluBlock
from tensorfold.adapters.mlx.heads.context_keys import ContextKeys
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.domain.families.ops import Attention, SwiGLU
from tensorfold.domain.families.plans import DFlashDrafter

A = TypeVar("A")


class BlockLayer(Generic[A]):
    """Layer `index` of a drafter."""

    def __init__(self, assembly: Assembly[A], plan: DFlashDrafter, index: int) -> None:
        attention, mlp = plan.layers[index]
        assert isinstance(attention.op, Attention)
        assert isinstance(mlp.op, SwiGLU)
        paths = [f"layers.{index}.{sublayer.name}" for sublayer in (attention, mlp)]
        self._ops, self._plan, self._op = assembly.ops, plan, attention.op
        self._attention_norm = norm_block(assembly, attention.pre_norm, f"{paths[0]}.pre_norm")
        self._heads = HeadProjections(assembly, attention.op, paths[0])
        self._out = LinearBlock(assembly, (f"{paths[0]}.out",))
        self._attention_mix = BlockConv(assembly, plan, f"{paths[0]}.mix")
        self._mlp_norm = norm_block(assembly, mlp.pre_norm, f"{paths[1]}.pre_norm")
        self._mlp = SwigluBlock(assembly, mlp.op, paths[1])
        self._mlp_mix = BlockConv(assembly, plan, f"{paths[1]}.mix")

    def context(self, rows: A, context: RowContext[A]) -> tuple[A, A]:
        """Keys and values of context rows, which skip the layer's norm and convolutions."""
        _, keys, values, _ = self._heads(rows, context)
        return keys, values

    def __call__(self, rows: A, context: RowContext[A], keys: ContextKeys[A]) -> A:
        """The block's rows [L, D] behind this layer."""
        add = self._ops.add
        normed = rows if self._attention_norm is None else self._attention_norm(rows)
        mix = self._attention_mix.kernels(normed)
        made = self._out(self._attend(self._attention_mix(normed, mix, 0), context, keys))
        rows = add(rows, self._attention_mix(made, mix, 1))
        normed = rows if self._mlp_norm is None else self._mlp_norm(rows)
        mix = self._mlp_mix.kernels(normed)
        made = self._mlp(self._mlp_mix(normed, mix, 0), context, rows)
        return add(rows, self._mlp_mix(made, mix, 1))

    def _attend(self, rows: A, context: RowContext[A], held: ContextKeys[A]) -> A:
        ops, op = self._ops, self._op
        xp: Any = ops.xp
        queries, keys, values, _ = self._heads(rows, context)
        all_keys, all_values = (
            xp.swapaxes(ops.wide(ops.join([old, new])), 0, 1) for old, new in ((held.keys, keys), (held.values, values))
        )
        wide: Any = ops.wide(queries)
        count = wide.shape[0]
        grouped = wide.reshape(count, op.kv_heads, -1, op.head_dim)
        grouped = xp.swapaxes(grouped, 0, 1).reshape(op.kv_heads, -1, op.head_dim) * op.scale
        scores = xp.matmul(grouped, xp.swapaxes(all_keys, 1, 2)).reshape(
            op.kv_heads, count, op.heads // op.kv_heads, -1
        )
        hidden = ops.float32(np.where(self._seen(count, held.held), 0.0, -np.inf).astype(np.float32))
        scores = scores + hidden[None, :, None, :]  # type: ignore[index]
        weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        weights = weights / xp.sum(weights, axis=-1, keepdims=True)
        read = xp.matmul(weights.reshape(op.kv_heads, -1, weights.shape[-1]), all_values)
        read = xp.swapaxes(read.reshape(op.kv_heads, count, -1, op.head_dim), 0, 1)
        return ops.narrow(read.reshape(count, -1))

    def _seen(self, count: int, held: int) -> NDArray[np.bool_]:
        """Which of the held tokens and the block's own rows [held + L] each row [L] may read."""
        rows = np.arange(count)[:, None]
        old = rows + held - np.arange(held)[None] < self._plan.window
        own = np.arange(count)[None] <= rows if self._plan.causal else np.ones((count, count), np.bool_)
        return np.concatenate([old, own], axis=1)


class BlockConv(Generic[A]):
    """Row r is mixed from rows r, r - 1, ..., with kernels that are a base plus a projection of the normed row.

    Two branches share one projection: before and after the op. Before the block's first row there is nothing.
    """

    def __init__(self, assembly: Assembly[A], plan: DFlashDrafter, path: str) -> None:
        self._ops, self._taps, self._group = assembly.ops, plan.conv_taps, plan.conv_group
        if self._taps:
            self._base: Any = assembly.ops.float32(assembly.weights.floats(f"{path}.base"))
            self._projection = LinearBlock(assembly, (f"{path}.projection",))

    def kernels(self, rows: A) -> Any:
        """Kernels [L, 2, taps, D] of the rows; None where the drafter has no convolutions."""
        if not self._taps:
            return None
        made: Any = self._ops.wide(self._projection(rows))
        grouped = made.reshape(made.shape[0], 2, self._taps, -1)
        return self._base[None] + self._ops.xp.repeat(grouped, self._group, axis=-1)

    def __call__(self, rows: A, kernels: Any, branch: int) -> A:
        """The mixed rows of one branch."""
        if kernels is None:
            return rows
        wide: Any = self._ops.wide(rows)
        total = wide * kernels[:, branch, 0]
        for tap in range(1, self._taps):
            back = self._ops.xp.concatenate([self._ops.xp.zeros_like(wide[:tap]), wide[: wide.shape[0] - tap]], axis=0)
            total = total + back[: wide.shape[0]] * kernels[:, branch, tap]
        return self._ops.narrow(total)
