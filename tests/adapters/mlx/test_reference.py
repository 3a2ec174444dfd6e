"""Windows and trees against a plain float64 decoder that knows no cache."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.domain.windows import Window, chain, tree
from tests.adapters.mlx.models import SLIDING
from tests.adapters.mlx.parity.ours import forward_of
from tests.adapters.mlx.reference_decoder import ReferenceDecoder
from tests.synthetic.llama_checkpoints import Layout, TinyLlama

SHAPES = {
    "sliding": SLIDING,
    "affine": TinyLlama(
        seed=41, vocabulary=96, width=64, mlp=96, quantization=Layout(6, 32), qkv_bias=True, out_bias=True
    ),
    "interleaved": TinyLlama(seed=42, vocabulary=96, width=64, mlp=96, extra={"rope_traditional": True}),
}


def _windows() -> list[Window]:
    generator = random.Random(9)
    tokens = [generator.randrange(96) for _ in range(60)]
    parents = [generator.randrange(max(0, row - 3), row) for row in range(1, 14)]
    return [chain(tokens[0], tokens[1:30]), chain(tokens[30], tokens[31:46]), tree(tokens[46], tokens[47:60], parents)]


@pytest.mark.parametrize("name", sorted(SHAPES))
@pytest.mark.parametrize("arithmetic", ("rows", "library"))
def test_chains_and_trees_agree_with_float64(name: str, arithmetic: str, tmp_path: Path) -> None:
    ops = CpuRows() if arithmetic == "rows" else LibraryRows("float32")
    forward = forward_of(SHAPES[name].write(tmp_path), ops)
    lane = forward.open(128)
    tokens: list[int] = []
    positions: list[int] = []
    ancestors: list[tuple[int, ...]] = []
    made = []
    for window in _windows():
        base, committed = len(tokens), lane.length
        before = tuple(range(base))
        tokens += window.tokens
        positions += [committed + depth for depth in window.depths()]
        ancestors += [(*before, *(base + r for r in window.path_to(row))) for row in range(len(window))]
        made.append(forward.logits(lane, window))
        lane.keep(tuple(range(len(window))) if window.is_chain else window.path_to(len(window) - 1))
    expected = ReferenceDecoder(SHAPES[name]).logits(tokens, positions, ancestors)
    ours = np.concatenate(made)
    assert np.abs(ours - expected).max() <= 5e-5
    assert (ours.argmax(axis=1) == expected.argmax(axis=1)).all()
