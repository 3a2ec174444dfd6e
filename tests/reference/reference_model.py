"""A decoder in float64, driven by any family's plan: the oracle that every backend and every library is held against.

Rows go one by one through all layers, as serial decoding does, each reading its own path of a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.plans import DecoderPlan, Tap
from tensorfold.domain.windows import Window
from tensorfold.kernels.reference.activations import soft_cap
from tensorfold.kernels.reference.hyper_connections import stream_mean
from tests.reference.lane import Lane
from tests.reference.reference_layers import read_out, run_layer
from tests.reference.reference_ops import Slots
from tests.reference.slot_reader import SlotReader
from tests.synthetic.safetensors_file import as_stored, as_values

Floats = NDArray[np.float64]
_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}


@dataclass(slots=True)
class Fed:
    """A lane and, of each of its rows, the streams [S, D] after every number of finished layers."""

    lane: Lane = field(default_factory=Lane)
    streams: list[list[Floats]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReferenceModel:
    """A plan and its weights. Rows, logits and taps are float64."""

    plan: DecoderPlan
    reader: SlotReader

    @staticmethod
    def load(folder: Path, plan: DecoderPlan) -> ReferenceModel:
        """The model of a checkpoint folder."""
        return ReferenceModel(plan, SlotReader.of(folder, plan.tensors))

    def logits(self, tokens: Sequence[int]) -> Floats:
        """Logits [T, V] of a sequence, every position reading those before it."""
        fed = Fed()
        return np.stack([self.feed(fed, token) for token in tokens])

    def tree_logits(self, prompt: Sequence[int], window: Window) -> Floats:
        """Logits [R, V] of a window's rows behind a prompt, each reading the prompt and its own ancestors."""
        fed = Fed()
        for token in prompt:
            self.feed(fed, token)
        first = len(prompt)
        made = [
            self.feed(fed, token, parent + first if parent >= 0 else first - 1)
            for token, parent in zip(window.tokens, window.parents, strict=True)
        ]
        return np.stack(made)

    def feed(self, fed: Fed, token: int, parent: int | None = None) -> Floats:
        """One more row, behind `parent` or the newest row; its logits [V]."""
        number = fed.lane.add(token, parent)
        at = fed.lane.at(number)
        streams = np.repeat(self.embed(token, scaled=True)[None], self.plan.streams, axis=0)
        passed = [streams]
        for index, layer in enumerate(self.plan.layers):
            streams = run_layer(layer, Slots(self.reader, f"layers.{index}"), streams, at)
            passed.append(streams)
        fed.streams.append(passed)
        return self.head(self.tap(fed, number, Tap(len(self.plan.layers), "readout")))

    def embed(self, token: int, *, scaled: bool) -> Floats:
        """The token's row of the embedding [D], times the plan's multiplier when `scaled`."""
        row: Floats = self.reader["embedding"][token]
        # The multiplier is rounded to the dtype that rows run in before it is used.
        factor = as_values(as_stored(np.array(self.plan.embedding.multiplier), _DTYPES[self.plan.activation]))
        return row * factor if scaled else row

    def head(self, row: Floats) -> Floats:
        """Logits [V] of a readout row."""
        tied = self.plan.head.tied
        return soft_cap(Slots(self.reader, "").linear("embedding" if tied else "head", row), self.plan.head.softcap)

    def tap(self, fed: Fed, number: int, tap: Tap) -> Floats:
        """What a tap reads of a fed row: [D], or [S * D] of all streams."""
        streams = fed.streams[number][tap.layer]
        if tap.form == "readout":
            return read_out(self.plan.readout, Slots(self.reader, "readout"), streams)
        if tap.form == "stream_mean":
            return stream_mean(streams)
        return streams.reshape(-1) if tap.form == "streams" else streams[0]
