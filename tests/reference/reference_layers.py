"""Layers, residual forms and readouts of a plan in float64, over the reference ops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.ops import HashedNgram
from tensorfold.domain.families.plans import Branch, HyperConnections, Layer, Parallel, Readout, Sublayer
from tensorfold.kernels.reference.hyper_connections import (
    lowrank_input,
    lowrank_output,
    sinkhorn_input,
    sinkhorn_output,
    sinkhorn_weights,
    stream_mean,
)
from tests.reference.lane import RowContext
from tests.reference.reference_ops import Slots, apply

Floats = NDArray[np.float64]


def run_layer(layer: Layer, slots: Slots, streams: Floats, at: RowContext) -> Floats:
    """The streams [S, D] behind one layer; `slots` are the layer's."""
    for sublayer in layer:
        streams = run_sublayer(sublayer, slots.below(sublayer.name), streams, at)
    return streams


def run_sublayer(sublayer: Sublayer, slots: Slots, streams: Floats, at: RowContext) -> Floats:
    """The streams behind one sublayer, in its residual form."""
    residual = sublayer.residual
    if isinstance(sublayer.op, HashedNgram):
        after = streams + apply(sublayer.op, slots, streams, at, streams)
    elif not isinstance(residual, HyperConnections):
        after = streams + inside(sublayer, slots, streams[0], at)
    elif residual.form == "lowrank":
        normed = slots.norm("residual.norm", residual.norm, streams.reshape(-1)).reshape(streams.shape)
        read = lowrank_input(normed, slots["residual.down"], slots["residual.up"])
        after = lowrank_output(streams, normed, slots["residual.inject"], inside(sublayer, slots, read, at))
    else:
        weights = sinkhorn_weights(
            streams,
            slots["residual.projection"],
            slots["residual.base"],
            slots["residual.scale"],
            residual.norm.eps,
            residual.iterations,
            residual.eps,
        )
        after = sinkhorn_output(streams, weights, inside(sublayer, slots, sinkhorn_input(streams, weights), at))
    return after * slots["scale"] if sublayer.scale else after


def inside(sublayer: Sublayer, slots: Slots, row: Floats, at: RowContext) -> Floats:
    """post_norm(op(pre_norm(x))), or the sum of branches that each read the same row."""
    op = sublayer.op
    read = slots.norm("pre_norm", sublayer.pre_norm, row)
    if isinstance(op, Parallel):
        made = sum((_branch(branch, slots.below(branch.name), read, at) for branch in op.branches), np.zeros_like(row))
    else:
        made = apply(op, slots, read, at, row)
    return slots.norm("post_norm", sublayer.post_norm, made)


def _branch(branch: Branch, slots: Slots, row: Floats, at: RowContext) -> Floats:
    made = apply(branch.op, slots, slots.norm("pre_norm", branch.pre_norm, row), at, row)
    return slots.norm("post_norm", branch.post_norm, made)


def read_out(readout: Readout, slots: Slots, streams: Floats) -> Floats:
    """The head's input [D] of the streams [S, D]."""
    if readout.mixer is not None:
        mixer = slots.below("mixer")
        normed = mixer.norm("norm", readout.mixer.norm, streams.reshape(-1)).reshape(streams.shape)
        return lowrank_input(normed, mixer["down"], mixer["up"])
    row = stream_mean(streams) if readout.form == "stream_mean_norm" else streams[0]
    return slots.norm("norm", readout.norm, row)
