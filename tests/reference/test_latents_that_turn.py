"""Latents with a rotated part, which no listed family has: held against attention over whole keys, written out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.ops import LatentAttention, Norm, Rope
from tensorfold.domain.families.rope import inverse_frequencies
from tensorfold.domain.families.weights import op_weights
from tensorfold.kernels.reference.attention import attend
from tensorfold.kernels.reference.norm import rms_norm
from tensorfold.kernels.reference.rope import rotate
from tests.reference.lane import Lane
from tests.reference.reference_ops import Slots, apply
from tests.reference.slot_reader import SlotReader

NORM = Norm(1e-6)
OP = LatentAttention(
    heads=3, q_rank=10, kv_rank=8, key_dim=6, rope_dim=4, value_dim=5, scale=0.3, q_norm=NORM, kv_norm=NORM,
    rope=Rope(4, 100.0),
)  # fmt: skip
WIDTH = 12


@dataclass(frozen=True, slots=True)
class Drawn:
    """Slots of one op without a checkpoint."""

    slots: Mapping[str, NDArray[np.float64]]

    def __getitem__(self, path: str) -> NDArray[np.float64]:
        return self.slots[path]

    def bias(self, path: str) -> None:
        """No module has one."""


def test_they_are_attention_with_keys_whose_last_dims_turn_for_all_heads_at_once() -> None:
    draw = np.random.default_rng(3)
    weights: dict[str, Any] = {
        f"x.{name}": draw.standard_normal(weight.shape) * 0.3 for name, weight in op_weights(OP, WIDTH)
    }
    rows = draw.standard_normal((7, WIDTH))
    lane, slots = Lane(), Slots(cast(SlotReader, Drawn(weights)), "x")
    made = [apply(OP, slots, row, lane.at(lane.add(0)), row) for row in rows]

    places, frequencies = np.arange(7), inverse_frequencies(OP.rope) if OP.rope else np.zeros(2)
    down = rows @ weights["x.kv_down"].T
    latents = rms_norm(down[:, :8], weights["x.kv_norm"], 1e-6)
    moved = rotate(down[:, None, 8:], places, frequencies)
    keys = np.concatenate(
        [np.einsum("hkc,tc->thk", weights["x.key_up"], latents), np.repeat(moved, OP.heads, axis=1)], axis=2
    )
    values = np.einsum("hvc,tc->thv", weights["x.value_up"], latents)
    queries = rms_norm(rows @ weights["x.q_down"].T, weights["x.q_norm"], 1e-6) @ weights["x.q_up"].T
    queries = queries.reshape(7, OP.heads, 10)
    queries[:, :, 6:] = rotate(queries[:, :, 6:], places, frequencies)
    mixed = attend(queries, keys, values, [range(row + 1) for row in range(7)], OP.scale)
    assert np.abs(np.array(made) - mixed.reshape(7, -1) @ weights["x.out"].T).max() < 1e-10
    assert lane.states(6)["x.latent"].shape == (7, OP.kv_rank + OP.rope_dim)
