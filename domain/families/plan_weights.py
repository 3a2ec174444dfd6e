"""Every weight of a whole plan by slot path: embedding, layers, readout, head, and draft heads.

Paths: `embedding`, `layers.N.NAME.SLOT` for the slots of sublayer NAME (`layers.N.NAME.BRANCH.SLOT` where branches
stand side by side), `readout.SLOT`, `head`, `mtp.SLOT`; a drafter's own checkpoint has paths of the same form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorfold.domain.families.plans import (
    DecoderPlan,
    DFlashDrafter,
    HyperConnections,
    Layer,
    MtpHead,
    Parallel,
    Readout,
    Residual,
    Sublayer,
)
from tensorfold.domain.families.tensors import Weight
from tensorfold.domain.families.weights import Weights, norm_weights, op_weights


def plan_weights(plan: DecoderPlan) -> Mapping[str, Weight]:
    """The weights of a model, its own head of drafts included."""
    return dict(_plan(plan))


def drafter_weights(drafter: DFlashDrafter) -> Mapping[str, Weight]:
    """The weights of a draft model's own checkpoint."""
    return dict(_drafter(drafter))


def _plan(plan: DecoderPlan) -> Weights:
    yield "embedding", Weight((plan.embedding.vocabulary, plan.width))
    yield from _layers("layers", plan.layers, plan.width)
    yield from _readout("readout", plan.readout, plan.width)
    if not plan.head.tied:
        yield "head", Weight((plan.head.vocabulary, plan.width), bias=plan.head.bias, split="vocabulary")
    if plan.mtp is not None:
        yield from _below("mtp", _mtp(plan.mtp, plan.width, plan.streams))


def _layers(root: str, layers: tuple[Layer, ...], width: int) -> Weights:
    for index, layer in enumerate(layers):
        for sublayer in layer:
            yield from _below(f"{root}.{index}.{sublayer.name}", _sublayer(sublayer, width))


def _sublayer(sublayer: Sublayer, width: int) -> Weights:
    yield from _residual(sublayer.residual, width)
    yield from norm_weights("pre_norm", sublayer.pre_norm, width)
    if isinstance(sublayer.op, Parallel):
        for branch in sublayer.op.branches:
            yield from _below(branch.name, norm_weights("pre_norm", branch.pre_norm, width))
            yield from _below(branch.name, op_weights(branch.op, width))
            yield from _below(branch.name, norm_weights("post_norm", branch.post_norm, width))
    else:
        yield from op_weights(sublayer.op, width)
    yield from norm_weights("post_norm", sublayer.post_norm, width)
    if sublayer.scale:
        yield "scale", Weight((1,), rule="plain")


def _residual(residual: Residual, width: int) -> Weights:
    if not isinstance(residual, HyperConnections):
        return
    streams, rows = residual.streams, residual.streams * width
    if residual.form == "lowrank":
        yield from _below("residual", _mixer(residual, width))
        yield "residual.inject", Weight((streams, rows))
    else:
        mixes = streams * (streams + 2)
        yield from norm_weights("residual.norm", residual.norm, rows)
        yield "residual.projection", Weight((mixes, rows), rule="float32")
        yield "residual.base", Weight((mixes,), rule="float32")
        yield "residual.scale", Weight((3,), rule="float32")


def _mixer(mixer: HyperConnections, width: int) -> Weights:
    rows = mixer.streams * width
    yield from norm_weights("norm", mixer.norm, rows)
    yield "down", Weight((mixer.rank, rows))
    yield "up", Weight((rows, mixer.rank))


def _readout(root: str, readout: Readout, width: int) -> Weights:
    yield from norm_weights(f"{root}.norm", readout.norm, width)
    if readout.mixer is not None:
        yield from _below(f"{root}.mixer", _mixer(readout.mixer, width))


def _mtp(mtp: MtpHead, width: int, streams: int) -> Weights:
    yield from norm_weights("embedding_norm", mtp.embedding_norm, width)
    yield from norm_weights("hidden_norm", mtp.hidden_norm, width * (streams if mtp.tap.form == "streams" else 1))
    if mtp.join == "concatenate":
        yield "join", Weight((width, 2 * width))
    else:
        yield "join_embedding", Weight((width, width))
        yield "join_hidden", Weight((width, width))
    yield from _layers("layers", mtp.layers, width)
    yield from _readout("readout", mtp.readout, width)


def _drafter(drafter: DFlashDrafter) -> Weights:
    width = drafter.width
    yield "context", Weight((width, len(drafter.taps) * width))
    yield from norm_weights("context_norm", drafter.context_norm, width)
    yield from _layers("layers", drafter.layers, width)
    for index, layer in enumerate(drafter.layers):
        for sublayer in layer:
            yield from _below(f"layers.{index}.{sublayer.name}.mix", _block_conv(drafter))
    yield from norm_weights("output_norm", drafter.output_norm, width)
    if drafter.selector_rank:
        yield "selector.projection", Weight((drafter.selector_rank, width))
        yield "selector.predecessor", Weight((drafter.vocabulary, drafter.selector_rank), rule="plain")
        yield "selector.successor", Weight((drafter.vocabulary, drafter.selector_rank), rule="plain")


def _block_conv(drafter: DFlashDrafter) -> Weights:
    if drafter.conv_taps:
        # Two kernels each: one before the op, one after it.
        yield "base", Weight((2, drafter.conv_taps, drafter.width), rule="plain")
        yield "projection", Weight((2 * drafter.conv_taps * (drafter.width // drafter.conv_group), drafter.width))


def _below(root: str, weights: Weights) -> Iterator[tuple[str, Weight]]:
    return ((f"{root}.{name}", weight) for name, weight in weights)
