"""What the prompt's benchmark is made of: shapes of true geometry, the ways of cutting, and one layer of experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.products import Products
from tensorfold.application.stored_weights import Codes, Matrix, Stored, Values
from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, Router, SharedExpert
from tensorfold.kernels.triton.prompt_matmul import Tiles
from tests.benchmarks.gpu_device import row_kernels

Tensor = Any
QWEN = {
    "gate_up": (34816, 5120, 64),
    "down": (5120, 17408, 64),
    "lin_in": (16480, 5120, 48),
    "qkvg": (14336, 5120, 16),
    "o": (5120, 6144, 64),
}
NEMOTRON = {
    "in_proj": (10304, 2688, 23),
    "out_proj": (2688, 4096, 29),
    "qkv": (4608, 2688, 6),
    "router": (128, 2688, 23),
}
"""Outputs, inputs, and how many of them a token passes."""
CUTS = (
    Tiles(128, 256, 64, 8, 3),
    Tiles(128, 256, 64, 8, 3, 16),
    Tiles(128, 256, 64, 8, 4),
    Tiles(128, 256, 64, 8, 3, 8, False, True),
    Tiles(128, 256, 64, 8, 3, 8, True, True),
    Tiles(128, 256, 64, 8, 3, 8, True, False),
    Tiles(256, 128, 64, 8, 3),
    Tiles(256, 128, 64, 8, 3, 8, True, True),
    Tiles(128, 128, 64, 8, 4),
    Tiles(128, 128, 64, 4, 4),
    Tiles(128, 128, 128, 8, 3),
    Tiles(64, 256, 64, 4, 4),
)
EXPERT_CUTS = (
    Tiles(128, 128, 64, 8, 3),
    Tiles(128, 128, 64, 4, 4),
    Tiles(128, 256, 64, 8, 3),
    Tiles(64, 128, 64, 4, 4),
    Tiles(64, 256, 64, 4, 4),
    Tiles(64, 256, 64, 8, 4),
)
LAYER = MixtureOfExperts(
    Router(128, 6, "sigmoid", correction=True, scale=2.5), FeedForward(1856), SharedExpert(FeedForward(3712))
)
HIDDEN, SLOTS, ENTRIES = 2688, 8, 130


def short(tiles: Tiles) -> str:
    """A cut in a few letters."""
    ways = ("R" if tiles.resident else "") + ("S" if tiles.through else "")
    return f"{tiles.m}x{tiles.n}x{tiles.k} w{tiles.warps} s{tiles.stages} g{tiles.group}{ways}"


def programs() -> int:
    """The card's multiprocessors."""
    return int(torch.cuda.get_device_properties(0).multi_processor_count)


class Drawn:
    """Slots of random 4-bit codes, all experts alike: for times, and for values of one layer."""

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        chance = np.random.default_rng(1)
        self.stored: dict[str, Stored] = {}
        for path, (outputs, inputs) in ((path, shape[-2:]) for path, shape in shapes.items()):
            if path.endswith("router"):
                values = chance.standard_normal((outputs, inputs)).astype(np.float32) / np.sqrt(inputs)
                self.stored[path] = Values((values.view(np.uint32) >> 16).astype(np.uint16), "BF16")
                continue
            words = chance.integers(0, 2**32, (outputs, inputs // 8), dtype=np.uint32)
            scales = np.full((outputs, inputs // 64), 2.0**-8, np.float32)
            self.stored[path] = Codes(words, scales, scales * -7.5, 4, 64, "BF16")

    def matrix(self, path: str) -> Matrix:
        stored = self.stored[path]
        if isinstance(stored, Values):
            return Matrix(stored, stored.raw.shape)
        return Matrix(stored, (len(stored.words), stored.words.shape[1] * 8))

    def entries(self, path: str) -> Any:
        for _ in range(LAYER.router.experts):
            yield self.matrix(path)

    def floats(self, path: str) -> Any:
        return np.zeros(LAYER.router.experts, np.float32)


def layer(folder: Path, **more: Any) -> Products:
    """Products over one Nemotron layer of experts."""
    shapes = {"m.router": (128, HIDDEN), "m.experts.up": (1856, HIDDEN), "m.experts.down": (HIDDEN, 1856)}
    shapes |= {"m.shared.up": (3712, HIDDEN), "m.shared.down": (HIDDEN, 3712)}
    return Products(Drawn(dict(shapes)), row_kernels(folder), torch.device("cuda"), **more)


def routes(count: int) -> tuple[Tensor, Tensor]:
    """Six experts at random and the two parts of the shared one, for so many rows."""
    chosen = torch.rand(count, LAYER.router.experts, device="cuda").topk(6).indices
    shared = torch.tensor([[128, 129]], device="cuda").expand(count, 2)
    ids = torch.cat([chosen, shared], 1).to(torch.int32).contiguous()
    return ids, torch.rand(count, SLOTS, device="cuda")
