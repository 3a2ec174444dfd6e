"""Seeded values for any slot of a plan, in the ranges that trained weights have, so that activations stay sane.

Each slot has a generator of its own, so tensors can be made in any order and one at a time. Only PCG64's uniform
doubles are used, which every numpy draws alike. Norm weights here are plain scales, whatever a file stores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.ops import Attention, HashedNgram, IndexedAttention, KimiDelta, Op
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter, Layer, Parallel
from tensorfold.domain.families.tensors import Weight

Floats = NDArray[np.float64]
Uniform = Callable[..., Floats]
_UNIT = float(np.sqrt(3.0))
"""Uniform values from -1 to 1, times this, have a mean square of one."""
_RANGES: Mapping[str, tuple[float, float]] = {
    "step_bias": (-4.0, -1.0),
    "skip": (0.5, 1.5),
    "scale": (0.8, 1.2),
    "router.correction": (-0.1, 0.1),
    "router.input_scale": (0.5, 1.5),
    "router.expert_scale": (0.5, 1.5),
    "residual.base": (-1.0, 1.0),
    "residual.scale": (0.3, 0.8),
    "indexer.offsets": (-1.0, 1.0),
}


def generator(seed: int, path: str) -> np.random.Generator:
    """The generator of one slot."""
    digest = hashlib.sha256(f"{seed}:{path}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "little")))


@dataclass(frozen=True, slots=True)
class SlotValues:
    """Values of a plan's slots by path; `owners` finds the op a slot belongs to.

    `embedding` is the root of an embedding's mean square, `head` what the head's rows are multiplied by, so that logits
    are neither flat nor certain over a few hundred ids.
    """

    seed: int
    embedding: float
    head: float
    owners: Mapping[str, Op]

    @staticmethod
    def of(plan: DecoderPlan | DFlashDrafter, seed: int) -> SlotValues:
        """The values of a plan, or of a drafter's own checkpoint."""
        owners = dict(_owners("layers", plan.layers))
        if isinstance(plan, DFlashDrafter):
            return SlotValues(seed, 1.0, 1.0, owners)
        if plan.mtp is not None:
            owners |= _owners("mtp.layers", plan.mtp.layers)
        # A tied model repeats its last token where the embedding outweighs what the layers add. A mixer's mean of gated
        # streams is smaller than a normed row.
        embedding = plan.width**-0.5 if plan.head.tied else 1.0 / plan.embedding.multiplier
        return SlotValues(seed, embedding, 2.0 if plan.readout.mixer is None else 4.0, owners)

    def owner(self, path: str) -> tuple[Op | None, str]:
        """The op whose path starts a slot's, and the slot's name below it."""
        for root, op in self.owners.items():
            if path.startswith(f"{root}."):
                return op, path[len(root) + 1 :]
        path = path.removeprefix("mtp.")
        return None, path.split(".", 3)[3] if path.startswith("layers.") else path

    def values(self, path: str, weight: Weight) -> NDArray[Any]:
        """Logical values of a slot: float64, or int64 of constants."""
        op, name = self.owner(path)
        if weight.rule == "integer":
            assert isinstance(op, HashedNgram)
            return constants(op)[name]
        made = generator(self.seed, path).random(weight.shape) * 2.0 - 1.0
        return made * self.spread(path, weight) + self.centre(path, weight, made)

    def bias(self, path: str, shape: tuple[int, ...]) -> Floats:
        """An ordinary bias beside a module."""
        return 0.1 * (generator(self.seed, f"{path}:bias").random(shape) * 2.0 - 1.0)

    def spread(self, path: str, weight: Weight) -> float:
        """What uniform values from -1 to 1 are multiplied by."""
        op, name = self.owner(path)
        if name in _RANGES:
            low, high = _RANGES[name]
            return (high - low) / 2
        if name == "decay_log":
            return 0.7 if isinstance(op, KimiDelta) else 1.2
        if name.endswith("norm"):
            return 0.1 * self.norm_centre(path)
        if name == "embedding":
            return _UNIT * self.embedding
        if name.endswith(("table", "predecessor", "successor")):
            return _UNIT if name == "table" else float(_UNIT * weight.shape[-1] ** -0.25)
        if name.endswith("mix.base"):
            return 0.2
        gain = self.head if name == "head" else 0.3 if name.endswith("mix.projection") else 1.0
        return float(gain * _UNIT / np.sqrt(weight.shape[-1]))

    def centre(self, path: str, weight: Weight, made: Floats) -> Floats | float:
        """What is added to the spread values."""
        op, name = self.owner(path)
        if name in _RANGES:
            return sum(_RANGES[name]) / 2
        if name == "decay_log":
            return 0.3 if isinstance(op, KimiDelta) else 1.3
        if name.endswith("norm"):
            return self.norm_centre(path)
        if name.endswith("mix.base"):
            own = np.zeros(weight.shape)
            own[:, 0] = 1.0  # a row's own tap
            return own
        return 0.0

    def norm_centre(self, path: str) -> float:
        """Around one; of normed queries and keys so that scores have the size that a scale of 1 / sqrt(d) gives."""
        op, name = self.owner(path)
        attention = op.attention if isinstance(op, IndexedAttention) else op
        if isinstance(attention, Attention) and name in ("q_norm", "k_norm"):
            return float((attention.scale * np.sqrt(attention.head_dim)) ** -0.5)
        return 1.0


def constants(op: HashedNgram) -> Mapping[str, NDArray[np.int64]]:
    """The integers that a hashed table's checkpoint repeats."""
    sizes = np.array(op.table_sizes, np.int64)
    return {
        "multipliers": np.array(op.multipliers, np.int64),
        "table_sizes": sizes,
        "offsets": np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
    }


def _owners(root: str, layers: tuple[Layer, ...]) -> Iterator[tuple[str, Op]]:
    for index, layer in enumerate(layers):
        for sublayer in layer:
            path = f"{root}.{index}.{sublayer.name}"
            if isinstance(sublayer.op, Parallel):
                yield from ((f"{path}.{branch.name}", branch.op) for branch in sublayer.op.branches)
            else:
                yield path, sublayer.op
