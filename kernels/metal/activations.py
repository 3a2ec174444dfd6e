"""Functions of one number, in float32, that gates, gated norms and convolutions share."""

from __future__ import annotations

from typing import Literal

Activation = Literal["none", "silu", "gelu_tanh", "relu2", "sigmoid"]
KINDS: dict[Activation, int] = {"none": 0, "silu": 1, "gelu_tanh": 2, "relu2": 3, "sigmoid": 4}

ACTIVATIONS = """
inline float sigmoid_of(float v) { return 1.0f / (1.0f + metal::precise::exp(-v)); }

// log(1 + exp(v)), written so that neither end overflows.
inline float softplus_of(float v) {
  return max(v, 0.0f) + metal::precise::log(1.0f + metal::precise::exp(-abs(v)));
}

template <int KIND>
inline float activated(float v) {
  if (KIND == 1) return v * sigmoid_of(v);
  if (KIND == 2) {
    const float inner = 0.7978845608028654f * fma(0.044715f * v * v, v, v);
    return 0.5f * v * (1.0f + metal::precise::tanh(inner));
  }
  if (KIND == 3) return max(v, 0.0f) * max(v, 0.0f);
  if (KIND == 4) return sigmoid_of(v);
  return v;
}
"""
