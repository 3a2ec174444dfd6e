"""A plan and its weights become rows through layers: sublayers around one residual, each sum fused with the next norm.

Knows no lane, ticket or request. What a plan needs beyond plain residuals is refused by name before its weights are
read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from tensorfold.adapters.cuda.assembly import Assembly, Block
from tensorfold.adapters.cuda.blocks.embedding import EmbeddingBlock
from tensorfold.adapters.cuda.blocks.head import HeadBlock
from tensorfold.adapters.cuda.blocks.norm import NormBlock
from tensorfold.adapters.cuda.builders import build
from tensorfold.adapters.cuda.rows import Chunk, Rows, Tensor
from tensorfold.domain.families.plans import DecoderPlan, Layer, Parallel

Taps = dict[int, Any]
Reached = Callable[[int], None]


def _on(count: int) -> None: ...


class SublayerBlock:
    """An op behind its norm."""

    def __init__(self, assembly: Assembly, norm: NormBlock, op: Block) -> None:
        self.norm, self.op = norm, op


class Decoder:
    """Rows through all layers, and logits of them."""

    def __init__(self, assembly: Assembly, plan: DecoderPlan) -> None:
        self.plan = plan
        self.embedding = EmbeddingBlock(assembly, plan.embedding)
        self.layers = build_layers(assembly, plan.layers, "layers")
        assert plan.readout.norm is not None
        self.readout = NormBlock(assembly, plan.readout.norm, "readout.norm")
        self.head = HeadBlock(assembly, plan.head, self.embedding)

    def decode(self, at: Rows, taps: Collection[int] = (), reached: Reached = _on) -> tuple[Tensor, Tensor, Taps]:
        """Logits float32 [R, V], the head's input [R, D], and the residual behind the layer counts in `taps`.

        `reached` is told how many layers are queued whenever one more is about to be; nothing hangs on it.
        """
        stream, made, tapped = self.embedding.decode(at.ids), None, {}
        for count, layer in enumerate(self.layers):
            reached(count)
            for number, sublayer in enumerate(layer):
                rows, stream = sublayer.norm(stream, made)
                if not number and count in taps:
                    tapped[count] = stream
                made = sublayer.op.decode(rows, at)
        rows, stream = self.readout(stream, made)
        if len(self.layers) in taps:
            tapped[len(self.layers)] = stream
        return self.head.decode(rows), rows, tapped

    def prompt(self, at: Chunk, taps: Collection[int] = (), *, read: bool = False) -> tuple[Tensor | None, Taps]:
        """As `decode` for a span whose rows draw nothing: the head's input where it is `read`, and the taps."""
        stream, made, tapped = self.embedding.prompt(at.ids), None, {}
        for count, layer in enumerate(self.layers):
            for number, sublayer in enumerate(layer):
                rows, stream = sublayer.norm(stream, made)
                if not number and count in taps:
                    tapped[count] = stream
                made = sublayer.op.prompt(rows, at)
        if not read and len(self.layers) not in taps:
            return None, tapped
        rows, stream = self.readout(stream, made)
        if len(self.layers) in taps:
            tapped[len(self.layers)] = stream
        return rows, tapped


def build_layers(assembly: Assembly, layers: tuple[Layer, ...], root: str) -> list[list[SublayerBlock]]:
    """The sublayers of every layer, states entered in order."""
    made = []
    for index, layer in enumerate(layers):
        row = []
        for sublayer in layer:
            path = f"{root}.{index}.{sublayer.name}"
            assert sublayer.pre_norm is not None
            assert not isinstance(sublayer.op, Parallel)
            norm = NormBlock(assembly, sublayer.pre_norm, f"{path}.pre_norm")
            row.append(SublayerBlock(assembly, norm, build(assembly, sublayer.op, path)))
        made.append(row)
    return made


def unbuilt(plan: DecoderPlan) -> Iterator[str]:
    """What of a plan this backend has no block for."""
    from tensorfold.adapters.cuda.builders import BUILDERS

    layers = (*plan.layers, *(plan.mtp.layers if plan.mtp is not None else ()))
    for sublayer in (each for layer in layers for each in layer):
        if isinstance(sublayer.op, Parallel):
            yield "branches side by side"
        elif type(sublayer.op) not in BUILDERS:
            yield type(sublayer.op).__name__
        if sublayer.post_norm is not None or sublayer.pre_norm is None or sublayer.scale:
            yield "norms behind an op"
    if plan.streams > 1:
        yield "several residual streams"
    if plan.readout.form != "norm":
        yield f"a {plan.readout.form} readout"
