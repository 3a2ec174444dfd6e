"""What gated delta steps cost in layers of the 27B on the card: layers with their products around the steps, less the
same without them.

That is the measure that counts: in a graph of one kernel over and over each launch finds its own code and the card's
free multiprocessors before it, and figures mislead.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.rows import SAVE
from tensorfold.kernels.cuda.affine_rows import Launch
from tensorfold.kernels.cuda.delta_steps import Form
from tensorfold.kernels.cuda.row_tilings import Matrix
from tensorfold.kernels.triton.conv import delta_inputs
from tensorfold.kernels.triton.gates import gated_norm
from tests.benchmarks.gpu_device import captured, filled, half, ints, row_kernels, seconds, stream
from tests.kernels.triton.recurrent_checks import run_delta

Tensor = Any
LAYERS, RING, MOST = 24, 131, 136
ROWS = (1, 4, 8, 16, 64)
PROJECT, OUT = Matrix(16480, 5120, 4), Matrix(5120, 6144, 4)
PARTS, FORM = (10240, 6144, 48, 48), Form(48, 16, 128, 128)


@dataclass(frozen=True, slots=True)
class Held:
    """What one layer holds of one lane, with nobody's behind it."""

    places: Tensor = field(default_factory=lambda: torch.randn(4, 48, 128, 128, device="cuda"))
    raw: Tensor = field(default_factory=lambda: half(2 * RING, PARTS[0]))
    mixed: Tensor = field(default_factory=lambda: half(2 * RING, PARTS[0]))
    factors: Tensor = field(default_factory=lambda: torch.zeros(2 * RING, 48, 8, device="cuda"))


class Layers:
    """Layers with weights and states of their own, launched over one lane's chain."""

    def __init__(self, folder: Path) -> None:
        self._kernels = row_kernels(folder)
        self._weights = list(zip(filled(PROJECT, LAYERS), filled(OUT, LAYERS), strict=True))
        self._held = [Held() for _ in range(LAYERS)]
        self._conv = torch.randn(4, PARTS[0], device="cuda")
        self._heads, self._norm = torch.full((48,), -1.0, device="cuda"), torch.ones(128, device="cuda")
        self._places = ints([[0, 1], [2, 3]])

    def seconds(self, rows: int, with_steps: bool = True) -> float:
        """A layer of so many rows."""
        return seconds(captured(self._queue(rows, with_steps)).replay) / LAYERS

    def _queue(self, rows: int, with_steps: bool) -> Callable[[], None]:
        steps = [(row, row, SAVE if row == rows - 1 else 0) for row in range(rows)]
        plan = ints([[*steps, *[(0, -1, 0)] * (MOST - rows)], [(0, -1, 0)] * MOST]), ints([rows, 0]), self._places
        taps = ints([[-(2 + at) if at >= 0 else -1 for at in range(row - 3, row)] for row in range(rows)])
        ring_at, lanes, x = ints(list(range(rows))), ints([0] * rows), half(rows, PROJECT.inputs)
        projected, y = half(rows, PROJECT.outputs), half(rows, OUT.outputs)
        read, gated = half(rows, 48, 128), half(rows, OUT.inputs)
        qkv, z, b, a = projected.split(PARTS, dim=1)
        project, out = self._kernels.rows(PROJECT, rows), self._kernels.rows(OUT, rows)

        def queue() -> None:
            for (first, last), held in zip(self._weights, self._held, strict=True):
                _multiply(project, first, x, projected)
                delta_inputs(
                    qkv, a, b, taps, ring_at, held.raw, held.mixed, held.factors, read, self._conv, None, self._heads,
                    self._heads, FORM.key_heads, 128, 1e-6,
                )  # fmt: skip
                if with_steps:
                    run_delta(FORM, held.places, held.mixed, held.factors, *plan, lanes, read)
                gated_norm(read.flatten(1), z, self._norm, gated, 48, 1e-6, gate_first=False)
                _multiply(out, last, gated, y)

        return queue


def _multiply(launch: Launch, weights: Tensor, x: Tensor, y: Tensor) -> None:
    launch(weights.data_ptr(), x.data_ptr(), y.data_ptr(), stream(), True)


def layer_costs(forms: dict[str, Any], use: Callable[[Any], Any]) -> dict[str, dict[str, float]]:
    """Microseconds that steps add to a layer, by form and rows; `use(form)` is entered while one is launched."""
    found: dict[str, dict[str, float]] = {name: {} for name in forms}
    with tempfile.TemporaryDirectory() as folder:
        layers = Layers(Path(folder))
        for rows in ROWS:
            bare = layers.seconds(rows, with_steps=False)
            for name, form in forms.items():
                with use(form):
                    found[name][str(rows)] = (layers.seconds(rows) - bare) * 1e6
    return found
