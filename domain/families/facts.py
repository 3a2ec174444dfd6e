"""Sizes of a plan as documents and commands tell them: layers by kind, parameters, bytes of state.

Counts what the plan lists; knows no checkpoint and no backend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tensorfold.domain.families.ops import (
    Attention,
    FeedForward,
    GatedDelta,
    HashedNgram,
    IndexedAttention,
    KimiDelta,
    LatentAttention,
    Mamba2,
    MixtureOfExperts,
    Op,
    SwiGLU,
)
from tensorfold.domain.families.plan_weights import drafter_weights, plan_weights
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter, Layer, Parallel
from tensorfold.domain.families.state import StateEntry, state_spec
from tensorfold.domain.families.weights import parameters

_KINDS: dict[type[Op], str] = {
    Attention: "attention",
    IndexedAttention: "indexed attention",
    LatentAttention: "latent attention",
    GatedDelta: "gated delta net",
    KimiDelta: "Kimi delta attention",
    Mamba2: "Mamba-2",
    SwiGLU: "gated MLP",
    FeedForward: "MLP",
    MixtureOfExperts: "experts",
    HashedNgram: "n-gram table",
}
_TABLE = ".ngram.table"


@dataclass(frozen=True, slots=True)
class State:
    """Bytes of state: a token adds `token`, each of the last `window` tokens `windowed` more; `fixed` stay."""

    token: int
    windowed: int
    window: int
    fixed: int

    def bytes_at(self, tokens: int) -> int:
        """Bytes held after `tokens` tokens, pooled rows counted on average."""
        return self.fixed + self.token * tokens + self.windowed * min(tokens, self.window)


@dataclass(frozen=True, slots=True)
class Facts:
    """A plan's sizes. `kinds` counts the ops of all layers; `table` are the parameters of n-gram tables.

    `parameters` leave out tables and the draft head, whose own are `head`; `state` is the model's, `head_state` what
    its draft head adds.
    """

    layers: int
    kinds: tuple[tuple[str, int], ...]
    experts: int
    parameters: int
    table: int
    head: int
    state: State
    head_state: State


def facts(plan: DecoderPlan) -> Facts:
    """The sizes of a model."""
    weights = plan_weights(plan)
    head = {path: weight for path, weight in weights.items() if path.startswith("mtp.")}
    tables = {path: weight for path, weight in weights.items() if path.endswith(_TABLE)}
    rest = {path: weight for path, weight in weights.items() if path not in head and path not in tables}
    entries = state_spec(replace(plan, mtp=None))
    return Facts(
        layers=len(plan.layers),
        kinds=tuple(Counter(map(_kind, _ops(plan.layers))).items()),
        experts=experts(plan),
        parameters=parameters(rest),
        table=parameters(tables),
        head=parameters(head),
        state=_state(entries),
        head_state=_state(state_spec(plan)[len(entries) :]),
    )


def drafter_parameters(drafter: DFlashDrafter) -> int:
    """Parameters of a drafter's own checkpoint."""
    return parameters(drafter_weights(drafter))


def drafter_state(drafter: DFlashDrafter, target: DecoderPlan) -> State:
    """The state a drafter adds to a lane of its target."""
    return _state(state_spec(target, drafter)[len(state_spec(target)) :])


def experts(plan: DecoderPlan) -> int:
    """Routed experts of the widest layer; 0 where there are none."""
    routed = (op.router.experts for op in _ops(plan.layers) if isinstance(op, MixtureOfExperts))
    return max(routed, default=0)


def _ops(layers: tuple[Layer, ...]) -> Iterator[Op]:
    for layer in layers:
        for sublayer in layer:
            if isinstance(sublayer.op, Parallel):
                yield from (branch.op for branch in sublayer.op.branches)
            else:
                yield sublayer.op


def _kind(op: Op) -> str:
    return "sliding attention" if isinstance(op, Attention) and op.window else _KINDS[type(op)]


def _state(entries: tuple[StateEntry, ...]) -> State:
    windowed = [entry for entry in entries if entry.window]
    return State(
        token=sum(entry.token_bytes for entry in entries if not entry.window),
        windowed=sum(entry.token_bytes for entry in windowed),
        # Listed models have one width of window; of several the widest counts, so that no byte is left out.
        window=max((entry.window for entry in windowed), default=0),
        fixed=sum(entry.fixed_bytes for entry in entries),
    )
