"""MLPs, experts and the hashed table over the references."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.ops import FeedForward, HashedNgram, MixtureOfExperts, SwiGLU
from tensorfold.kernels.reference.experts import mix_experts, shared_expert
from tensorfold.kernels.reference.feed_forward import feed_forward
from tensorfold.kernels.reference.hashed_ngram import gated_value, ngram_rows, seen_tokens
from tensorfold.kernels.reference.router import choose_experts, router_input
from tensorfold.kernels.reference.swiglu import swiglu
from tests.reference.lane import RowContext
from tests.reference.recurrent_ops import convolved
from tests.reference.slots import Slots, apply

Floats = NDArray[np.float64]


@apply.register
def _(op: SwiGLU, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    return _mlp(op, slots, row)


@apply.register
def _(op: FeedForward, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    return _mlp(op, slots, row)


def _mlp(op: SwiGLU | FeedForward, slots: Slots, row: Floats, expert: int | None = None) -> Floats:
    """An MLP, or one expert of stacked ones."""
    if op.bias:
        raise NotImplementedError("no listed family has biases in its MLPs")

    def weight(name: str) -> Floats:
        return slots[name] if expert is None else slots[name][expert]

    if isinstance(op, SwiGLU):
        return swiglu(row, weight("gate"), weight("up"), weight("down"), op.activation, op.limit)
    return feed_forward(row, weight("up"), weight("down"), op.activation)


@apply.register
def _(op: MixtureOfExperts, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    router = op.router
    read = residual if router.from_residual else row
    if router.input_norm is not None:
        norm_weight = slots["router.norm"] if router.input_norm.weight else None
        scale = slots["router.input_scale"] if router.input_scale else None
        read = router_input(read, norm_weight, router.input_norm.eps, router.input_factor, scale)
    chosen, weights = choose_experts(
        slots.linear("router", read),
        router.chosen,
        router.scoring,
        normalize=router.normalize,
        over_chosen=router.over_chosen,
        correction=slots["router.correction"] if router.correction else None,
        scale=router.scale,
        expert_scale=slots["router.expert_scale"] if router.expert_scale else None,
    )
    inner = slots.linear("latent_down", row) if op.latent else row
    experts = slots.below("experts")
    made = mix_experts(inner, chosen, weights, lambda expert, x: _mlp(op.expert, experts, x, expert))
    if op.latent:
        made = slots.linear("latent_up", made)
    if op.shared is None:
        return made
    switch = slots["shared.switch"] if op.shared.gated else None
    return made + shared_expert(row, _mlp(op.shared.op, slots.below("shared"), row), switch)


@apply.register
def _(op: HashedNgram, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    history = at.before(slots.full("tokens"), [op.boundary_token] * (op.ngram - 1))
    at.leave(slots.full("tokens"), [*history[1:], at.row.token])
    seen = seen_tokens(history, at.row.token, op.boundary_token)
    numbers = ngram_rows(seen, op.multipliers, op.table_sizes, op.heads_per_ngram)
    table = slots["table"]
    found = np.concatenate([table[number // op.shard_rows, number % op.shard_rows] for number in numbers])
    flat, shape = row.reshape(-1), row.shape
    key = slots.norm("key_norm", op.norm, slots.linear("key", found)).reshape(shape)
    query = slots.norm("query_norm", op.norm, flat).reshape(shape)
    entered = gated_value(key, query, slots.linear("value", found)).reshape(-1)
    normed = slots.norm("conv_norm", op.norm, entered)
    spread = convolved(op.conv, normed, slots["conv"], None, slots.full("conv"), at)
    return (entered + spread).reshape(shape)
