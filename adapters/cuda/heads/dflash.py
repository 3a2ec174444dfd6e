"""A block drafter with weights of its own: taps of kept rows become keys that a block of masked positions reads.

One pass, one graph, drafts every position behind the pending token; a selector scores pairs of neighbouring candidates.
Embedding and head are the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.blocks.norm import NormBlock
from tensorfold.adapters.cuda.decoder import Decoder
from tensorfold.adapters.cuda.heads.block_lane import MOST_ROWS, BlockLane, QueuedBlock
from tensorfold.adapters.cuda.heads.block_layer import BlockLayer, BlockRows
from tensorfold.adapters.cuda.heads.block_pass import LENGTHS, BlockPass, length_for
from tensorfold.adapters.cuda.heads.blocks import IntBlock
from tensorfold.adapters.cuda.heads.context_rings import ContextRings
from tensorfold.adapters.cuda.heads.draft_logits import DraftLogits
from tensorfold.adapters.cuda.heads.graphs import Graphs, padded
from tensorfold.adapters.cuda.heads.head import Behind, Found, KeptRows, QueuedDrafts, Taps
from tensorfold.adapters.cuda.heads.selector import Selector
from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.application.ports.target_model import HeadLimits, Lattice, ProposeSpec
from tensorfold.domain.families.ops import Attention
from tensorfold.domain.families.plans import DFlashDrafter
from tensorfold.domain.families.state import StateEntry
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.kernels.triton.draft_ahead import BLOCK_FACTS, keep_tokens
from tensorfold.kernels.triton.draft_block import place_context
from tensorfold.kernels.triton.draft_rows import take_rows

MOST_DRAFTS = 15


def kept_counts() -> tuple[int, ...]:
    """Rows of the passes that enter kept rows."""
    return tuple(1 << power for power in range(MOST_ROWS.bit_length()))


def block_counts(room: Room) -> tuple[int, ...]:
    """Rows of the passes that draft: blocks of each length, and the same without the pending token's rows."""
    blocks = [1 << power for power in range(padded(room.lanes - 1).bit_length())]
    return tuple(sorted({each * rows for each in blocks for length in LENGTHS for rows in (length - 1, length)}))


class BlockDrafts:
    """A draft head made of a drafter's plan and its own checkpoint; `assembly` reads that, `target` the model."""

    def __init__(
        self,
        assembly: Assembly,
        target: Assembly,
        decoder: Decoder,
        plan: DFlashDrafter,
        name: str,
        *,
        graphs: bool = True,
    ) -> None:
        self._plan, self._decoder, self._assembly = plan, decoder, assembly
        device, op = assembly.device, plan.layers[0][0].op
        assert isinstance(op, Attention)
        self._op = op
        assembly.products.launched_with(kept_counts())
        self._context = assembly.products.linear("context")
        self._context_norm = NormBlock(assembly, plan.context_norm, "context_norm")
        names = [f"layers.{at}.{layer[0].name}.{kind}" for at, layer in enumerate(plan.layers) for kind in "kv"]
        self._context_heads = assembly.products.linear(*names)
        for products in (assembly.products, target.products):
            products.launched_with(block_counts(assembly.room))
        self.layers = [BlockLayer(assembly, plan, index) for index in range(len(plan.layers))]
        self._k_norms = torch.stack([layer.heads.k_norm for layer in self.layers])
        self._output_norm = NormBlock(assembly, plan.output_norm, "output_norm")
        self._selector = Selector(assembly, plan, DraftLogits(target, decoder.plan.head, plan.draft_ids))
        self.rings = ContextRings(
            assembly.room, len(plan.layers), op.kv_heads, op.head_dim, plan.window, assembly.dtype, device
        )
        self._graphs = Graphs(device, wanted=graphs)
        self._tapped = torch.zeros((MOST_ROWS, len(plan.taps) * plan.width), dtype=assembly.dtype, device=device)
        self._targets = torch.arange(MOST_ROWS, dtype=torch.int32, device=device)
        self._facts = IntBlock({"facts": (assembly.room.lanes, BLOCK_FACTS)}, device)
        self._kept: dict[int, IntBlock] = {}
        self._blocks: dict[tuple[int, int], BlockPass] = {}
        self.limits = HeadLimits("lattice", MOST_DRAFTS, MOST_DRAFTS, title=name)

    @property
    def taps(self) -> frozenset[int]:
        """The layers behind which it reads."""
        return frozenset(tap.layer for tap in self._plan.taps)

    @property
    def entries(self) -> tuple[StateEntry, ...]:
        """Keys and values of each layer, for the newest tokens that a block can reach."""
        made = []
        for index, layer in enumerate(self._plan.layers):
            for kind in ("keys", "values"):
                path = f"drafter.layers.{index}.{layer[0].name}.{kind}"
                shape, window = (self._op.kv_heads, self._op.head_dim), self._plan.window - 1
                made.append(_entry(path, kind, self._assembly.activation, shape, window))
        return tuple(made)

    def open(self, entry: LaneEntry) -> BlockLane:
        """Empty state of a lane, or of what stands beside a kept state."""
        return BlockLane(self, entry)

    def move(self, moves: Tensor) -> None:
        """Nothing: only kept rows enter, in their order."""

    # -- kept rows -----------------------------------------------------------------------------------------------

    def take(self, kept: Sequence[KeptRows], taps: Taps) -> None:
        """Enter keys and values of rows of one launch that lanes keep."""
        streams = [taps[tap.layer] for tap in self._plan.taps]
        sources = [row for each in kept for row in each.rows]
        rings = [each.lane.ring for each in kept for _ in each.rows]
        positions = [position for each in kept for position in each.lane.longer(len(each.rows))]
        for start in range(0, len(sources), MOST_ROWS):
            part = slice(start, start + MOST_ROWS)
            self._take(sources[part], positions[part], rings[part], streams)

    def _take(
        self, sources: Sequence[int], positions: Sequence[int], rings: Sequence[int], streams: Sequence[Tensor]
    ) -> None:
        count = len(sources)
        block = self.kept_block(padded(count))
        fields = block.host()
        fields["sources"][:count], fields["sources"][count:] = sources, -1
        fields["positions"][:count], fields["positions"][count:] = positions, 0
        fields["lanes"][:count], fields["lanes"][count:] = rings, self.rings.nobody
        block.send()
        take_rows(streams, block.device["sources"], self._targets, count, self._tapped)
        self.enter_tapped(padded(count))

    def kept_block(self, rows: int) -> IntBlock:
        """Where so many kept rows lie in their launch, and what they become."""
        if rows not in self._kept:
            shapes = dict.fromkeys(("sources", "positions", "lanes"), (rows,))
            self._kept[rows] = IntBlock(shapes, self._assembly.device)
        return self._kept[rows]

    def enter_tapped(self, rows: int) -> None:
        """Queue the keys and values of the tapped rows, as their block places them."""
        fields = self._kept[rows].device

        def queue() -> None:
            made, _ = self._context_norm(self._context.decode(self._tapped[:rows]), None)
            self._place(self._context_heads.decode(made), fields["positions"], fields["lanes"])

        self._graphs.run(("absorb", rows), queue)

    def absorb_span(self, ring: int, first: int, count: int, taps: Taps) -> None:
        """A prompt's rows, of which the newest that a block can reach are all that is kept."""
        held = self.rings.held(count)
        tapped = torch.cat([taps[tap.layer][count - held :] for tap in self._plan.taps], dim=1)
        made, _ = self._context_norm(self._context.prompt(tapped), None)
        start = first + count - held
        positions = torch.arange(start, start + held, dtype=torch.int32, device=tapped.device)
        self._place(self._context_heads.prompt(made), positions, torch.full_like(positions, ring))

    def _place(self, projected: Tensor, positions: Tensor, lanes: Tensor) -> None:
        place_context(self.layers[0].heads, self._k_norms, projected, positions, lanes, self.rings.rings)

    # -- drafts --------------------------------------------------------------------------------------------------

    def propose(self, asked: Sequence[tuple[BlockLane, ProposeSpec]]) -> list[Lattice | None]:
        """Lattices of several lanes; blocks of one length are drafted side by side."""
        answers: list[Lattice | None] = [None] * len(asked)
        ready = [(at, lane, spec) for at, (lane, spec) in enumerate(asked) if lane.length]
        for length in sorted({length_for(spec.depth) for _, _, spec in ready}):
            together = [each for each in ready if length_for(each[2].depth) == length]
            run = self.block_pass(len(together), length)
            run.fill([(lane, spec.pending) for _, lane, spec in together])
            for (at, _, spec), lines in zip(together, run.told().get().numpy(), strict=False):
                answers[at] = self._selector.lattice(lines, spec.depth)
        return answers

    def queue(self, behind: Sequence[Behind], found: Found) -> list[QueuedDrafts | None]:
        """Queue the keys of a launch's rows that stand, and blocks behind them: those of the longest length asked."""
        made: list[QueuedDrafts | None] = [None] * len(behind)
        length = max(length_for(each.spec.depth) for each in behind)
        ready = [(at, each) for at, each in enumerate(behind) if length_for(each.spec.depth) == length]
        rows = sum(each.rows for _, each in ready)
        if rows > MOST_ROWS:
            return made
        lanes = [(each.line, each.start, each.lane.ring, each.lane.length) for _, each in ready]
        self._facts.host()["facts"][: len(lanes)] = lanes
        self._facts.send()
        facts, block = self._facts.device["facts"], self.kept_block(padded(rows)).device
        streams = [found.taps[tap.layer] for tap in self._plan.taps]
        keep_tokens(
            found.kept, facts, len(lanes), streams, self._tapped, block["positions"], block["lanes"], self.rings.nobody
        )
        self.enter_tapped(padded(rows))
        run = self.block_pass(len(ready), length)
        run.fill([(each.lane, 0) for _, each in ready])
        run.follow(found.kept, facts, len(lanes))
        told = run.told()
        for column, (at, each) in enumerate(ready):
            made[at] = QueuedBlock(self._selector, each.lane, length, told, column)
        return made

    def block_pass(self, blocks: int, length: int) -> BlockPass:
        """The pass that takes so many blocks."""
        key = padded(blocks), length
        if key not in self._blocks:
            self._blocks[key] = BlockPass(self, *key)
        return self._blocks[key]

    def draft(self, at: BlockRows, ids: Tensor, pending: Tensor, told: Tensor) -> None:
        """One pass of blocks."""
        stream, made = self._decoder.embedding.decode(ids), None
        for layer in self.layers:
            stream, made = layer(stream, made, at, self.rings.rings)
        rows, _ = self._output_norm(stream, made)
        blocks = len(at.lanes)
        hidden = rows.view(blocks, at.length, -1)[:, 1:].reshape(blocks * (at.length - 1), -1)
        self._selector.tell(hidden, pending, blocks, told)

    def block_pass_shape(self, blocks: int, length: int) -> tuple[int, int, int]:
        """The shape of what a pass tells."""
        return blocks, length - 1, self._selector.numbers

    @property
    def mask_token(self) -> int:
        """The id at positions to be drafted."""
        return self._plan.mask_token

    @property
    def device(self) -> Any:
        """Where it runs."""
        return self._assembly.device

    @property
    def graphs(self) -> Graphs:
        """Its graphs."""
        return self._graphs


def _entry(path: str, kind: Any, dtype: str, shape: tuple[int, int], window: int) -> StateEntry:
    return StateEntry(path, kind, dtype, shape, per=1, window=window)
