"""The bytes that a pass of rows takes beside weights and lanes: activations, attention's scores, logits.

An estimate from the plan's sizes, for the widest layer, since layers run one after another. Knows no device.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.domain.families.ops import (
    Attention,
    FeedForward,
    IndexedAttention,
    LatentAttention,
    MixtureOfExperts,
    Op,
    SwiGLU,
)
from tensorfold.domain.families.plans import DecoderPlan, Parallel
from tensorfold.domain.families.state import ITEM_BYTES, state_spec

_COPIES = 4
"""Residual, norm, the op's result and the next residual."""
_DRAWN = 64
"""Rows of a launch at most; their logits stand on the device and on the host. Rows of a prompt draw nothing."""


@dataclass(frozen=True, slots=True)
class Work:
    """A pass of n rows over lanes of up to t tokens takes `fixed + n * (row + score * t)` bytes, `least` at least."""

    least: int
    fixed: int
    row: int
    score: int

    def bytes_for(self, rows: int, tokens: int) -> int:
        """Bytes of a pass."""
        return max(self.least, self.fixed + rows * (self.row + self.score * tokens))


def work_of(plan: DecoderPlan, dtype: str, *, least: int = 0, score_copies: int = 1) -> Work:
    """The work of a plan whose rows are of `dtype`; scores and logits are float32, scores `score_copies` times."""
    item = ITEM_BYTES[dtype]
    ops = [op for layer in plan.layers for sublayer in layer for op in _branches(sublayer.op)]
    inner = max((_inner(op) for op in ops), default=0)
    heads = max((_heads(op) for op in ops), default=0)
    recurrent = max((entry.row_bytes for entry in state_spec(plan) if entry.kind == "recurrent"), default=0)
    return Work(
        least=least,
        # A tree keeps the state behind each of its rows while one layer runs.
        fixed=recurrent * plan.tree_window + _DRAWN * 2 * 4 * plan.head.vocabulary,
        row=item * (_COPIES * plan.streams * plan.width + inner) + 4 * max((_chosen(op) for op in ops), default=0),
        score=4 * heads * score_copies,
    )


def _branches(op: Op | Parallel) -> tuple[Op, ...]:
    return tuple(branch.op for branch in op.branches) if isinstance(op, Parallel) else (op,)


def _inner(op: Op) -> int:
    """Values of a row inside an op."""
    if isinstance(op, SwiGLU):
        return 3 * op.width
    if isinstance(op, FeedForward):
        return 2 * op.width
    if isinstance(op, MixtureOfExperts):
        shared = 0 if op.shared is None else _inner(op.shared.op)
        return _inner(op.expert) * op.router.chosen + shared
    if isinstance(op, Attention):
        return (2 * op.heads + 2 * op.kv_heads) * op.head_dim
    return 0


def _chosen(op: Op) -> int:
    """Scores of a row over the keys that a choice left, whatever the length of the past."""
    if isinstance(op, IndexedAttention):
        return op.attention.heads * op.indexer.budget
    if isinstance(op, LatentAttention) and op.indexer is not None:
        return op.heads * op.indexer.budget
    return op.heads * op.window if isinstance(op, Attention) else 0


def _heads(op: Op) -> int:
    """Score heads that read the whole past; a choice of keys bounds what the others read."""
    if isinstance(op, IndexedAttention):
        return op.indexer.heads
    if isinstance(op, LatentAttention):
        return op.indexer.heads if op.indexer is not None else op.heads
    return op.heads if isinstance(op, Attention) and not op.window else 0
