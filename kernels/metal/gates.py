"""Elementwise steps between products: gated and plain activations, and the gate of an attention's result.

Every element is computed in float32 and rounded once. Nothing is summed, so a row meets no other.
"""

from __future__ import annotations

import math

import mlx.core as mx

from tensorfold.kernels.metal.activations import ACTIVATIONS, KINDS, Activation
from tensorfold.kernels.metal.launch import MetalKernel

GATED = MetalKernel(
    name="gated",
    inputs=("gate", "up", "limit"),
    outputs=("y",),
    header=ACTIVATIONS,
    body="""
  const size_t i = thread_position_in_grid.x;
  float opened = float(gate[i]), value = float(up[i]);
  if (LIMITED) {
    opened = min(opened, float(limit));
    value = clamp(value, -float(limit), float(limit));
  }
  y[i] = T(activated<KIND>(opened) * value);
""",
)

PLAIN = MetalKernel(
    name="activated",
    inputs=("x",),
    outputs=("y",),
    header=ACTIVATIONS,
    body="""
  const size_t i = thread_position_in_grid.x;
  y[i] = T(activated<KIND>(float(x[i])));
""",
)

THREADS = 256


def gated(gate: mx.array, up: mx.array, activation: Activation = "silu", limit: float = 0.0) -> mx.array:
    """activation(gate) * up, of the same shape and dtype; `limit` L clamps gate above at L and up to [-L, L], 0 is off.

    With "sigmoid" it is the output gate of an attention or of a shared expert: sigmoid(gate) * up.
    """
    (y,) = GATED(
        [gate, up, mx.array(limit, mx.float32)],
        grid=(math.prod(gate.shape), 1, 1),
        threadgroup=(THREADS, 1, 1),
        shapes=[tuple(gate.shape)],
        dtypes=[gate.dtype],
        T=gate.dtype,
        KIND=KINDS[activation],
        LIMITED=limit > 0,
    )
    return y


def activate(x: mx.array, activation: Activation) -> mx.array:
    """activation(x), of the same shape and dtype."""
    (y,) = PLAIN(
        [x],
        grid=(math.prod(x.shape), 1, 1),
        threadgroup=(THREADS, 1, 1),
        shapes=[tuple(x.shape)],
        dtypes=[x.dtype],
        T=x.dtype,
        KIND=KINDS[activation],
    )
    return y
