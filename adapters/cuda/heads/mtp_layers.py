"""The layers of a model's own head on the device: entries, each a row joined with the token behind it, to drafts' rows.

Knows no lane: where entries stand is told by `Rows` or `Chunk`. Keys and values lie in pools of the head's own.
"""

from __future__ import annotations

from dataclasses import replace

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly, KeyBlock
from tensorfold.adapters.cuda.blocks.norm import NormBlock
from tensorfold.adapters.cuda.decoder import Decoder, build_layers
from tensorfold.adapters.cuda.rows import Chunk, Rows, Tensor
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import Norm
from tensorfold.domain.families.plans import MtpHead
from tensorfold.domain.families.state import StateEntry
from tensorfold.kernels.triton.draft_rows import Norms, join_rows


class MtpLayers:
    """Norms, join, layers and readout below `mtp.`; the embedding is the decoder's. Raises RefusedError."""

    def __init__(self, assembly: Assembly, decoder: Decoder, plan: MtpHead) -> None:
        _refuse(plan)
        assert plan.readout.norm is not None
        own = replace(assembly, keyed=[], recurrent=[], order=[], entries=[])
        self._plan, self._decoder = plan, decoder
        norms = [NormBlock(own, norm, path) for norm, path in _norms(plan)]
        self._norms = Norms(norms[0].weight, norms[1].weight, norms[0].eps, norms[1].eps, plan.zero_first_embedding)
        self._join = own.products.linear("mtp.join")
        self._sublayers = [each for layer in build_layers(own, plan.layers, "mtp.layers") for each in layer]
        self._readout = NormBlock(own, plan.readout.norm, "mtp.readout.norm")
        if own.recurrent:
            raise RefusedError("The CUDA backend has no draft heads with recurrent layers yet; start with --no-drafts.")
        keyed = {id(block) for block in own.keyed}
        # Behind its last keys an entry changes no state: only rows that are drawn go on.
        self._stateful = max((at + 1 for at, each in enumerate(self._sublayers) if id(each.op) in keyed), default=0)
        self.keyed: list[KeyBlock] = own.keyed
        self.entries: tuple[StateEntry, ...] = tuple(own.entries)

    def tapped(self, stream: Tensor) -> Tensor:
        """The rows that it reads, of a tapped residual."""
        if self._plan.tap.form != "readout":
            return stream
        rows, _ = self._decoder.readout(stream, None)
        return rows

    def enter(self, hidden: Tensor, at: Rows, lasts: Tensor | None) -> Tensor | None:
        """Rows [B, D] behind the readout of the entries `lasts` [B] among those of `at`; without, keys alone."""
        stream, made = self._join.decode(self._joined(at.ids, hidden, at.slots)), None
        for number, sublayer in enumerate(self._sublayers):
            if number == self._stateful:
                if lasts is None:
                    return None
                stream = stream.index_select(0, lasts)
                made = None if made is None else made.index_select(0, lasts)
            rows, stream = sublayer.norm(stream, made)
            made = sublayer.op.decode(rows, at)
        if lasts is None:
            return None
        rows, stream = self._readout(stream, made)
        return rows if self._stateful < len(self._sublayers) else rows.index_select(0, lasts)

    def prompt(self, hidden: Tensor, at: Chunk) -> None:
        """Enter the entries of a span, keys alone."""
        places = torch.arange(at.start, at.start + at.count, dtype=torch.int32, device=hidden.device)
        stream, made = self._join.prompt(self._joined(at.ids, hidden, places)), None
        for sublayer in self._sublayers[: self._stateful]:
            rows, stream = sublayer.norm(stream, made)
            made = sublayer.op.prompt(rows, at)

    def _joined(self, ids: Tensor, hidden: Tensor, places: Tensor) -> Tensor:
        out = hidden.new_empty((len(hidden), 2 * hidden.shape[1]))
        join_rows(self._decoder.embedding.decode(ids), hidden.contiguous(), places, self._norms, out)
        return out


def _norms(plan: MtpHead) -> tuple[tuple[Norm, str], ...]:
    return (plan.embedding_norm, "mtp.embedding_norm"), (plan.hidden_norm, "mtp.hidden_norm")


def _refuse(plan: MtpHead) -> None:
    read = plan.join == "concatenate" and plan.feedback == "readout" and plan.readout.form == "norm"
    if not read or plan.tap.form not in ("readout", "residual"):
        raise RefusedError("The CUDA backend has no draft head of this form yet; start with --no-drafts.")
