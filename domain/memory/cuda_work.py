"""What a model on a card takes beside weights and pools: what launches keep, a round's buffers, a prompt's chunk.

Each term follows what the blocks of `adapters/cuda` allocate, op by op; tests run those blocks over tensors without
bytes and compare. What no arithmetic tells, the code of kernels and a graph's nodes, was measured. Knows no device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass

from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.ops import Attention, FeedForward, GatedDelta, Mamba2, MixtureOfExperts, Op, SwiGLU
from tensorfold.domain.families.plan_weights import drafter_weights
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter, Layer, Parallel
from tensorfold.domain.families.storage import Affine
from tensorfold.domain.memory.work import Work

MIB = 1 << 20
ROW, WIDE, INDEX = 2, 4, 8
"""Bytes of a number of bf16, of float32 and of an int64."""
BASE = 3
"""Of a layer: the residual, the normed rows, and what the op before it made."""
LAUNCH_ROWS, MOST_ROWS = 400, 64
"""Rows of all captured launches together, 1 to 16, then every eighth to 64; and of the widest."""
_LAUNCHES = 22
LAUNCH_LAYER = 64 << 10
"""Bytes of a captured launch for each layer: 2.5 to 5 KiB a node, as on an H200 with torch 2.11, about 20 nodes."""
CODE = 192 * MIB
"""Code of kernels and what they spill: 184 MiB with the graphs of an 8B, on an H200 with torch 2.11."""
DRAW_ROW = 64 << 10
"""What drawing holds for a row of a launch besides a mask and its settings."""
STACK = 256 * MIB
"""Values of experts that are unpacked at once."""
HEAD = 32 * MIB
"""A draft head's own launches, and logits of a part of the ids for a few lanes."""
HOST = 101 * MIB
"""What libraries and pinned blocks add to the machine's memory while slots are read: of an 8B and of Nemotron alike."""
HOST_LAYER = 3 * MIB
"""What captured launches have added for each layer at the end of a load, when no slot is held: 2.3 to 3.1 MiB."""
_SIDE_BY_SIDE = 2
"""Matrices that are multiplied as one, such as gate and up."""
_ROUNDED = MIB // 8
"""What an allocator adds to a matrix, which it holds in whole steps: 30 MiB to 250 of them."""
_MOST_PARTS, _LEAST_PARTS, _UNITS = 64, 8, 128
_DELTA_BLOCK, _DELTA_GATES = 64, 4


@dataclass(frozen=True, slots=True)
class Scratch:
    """Bytes by what they are for; `row` are those of one row of a prompt's chunk, all else is there from a load on.

    `results` are what every captured launch keeps, `rounds` the buffers that all of them share, `unpacked` the room for
    matrices that a prompt's rows are multiplied with.
    """

    code: int
    graphs: int
    results: int
    rounds: int
    unpacked: int
    head: int
    rounding: int
    row: int

    @property
    def work(self) -> Work:
        """The same as the work of a pass."""
        return Work(0, sum(asdict(self).values()) - self.row, self.row, 0)


def scratch_of(
    plan: DecoderPlan, bound: Mapping[str, Bound], *, drafts: bool = False, drafter: DFlashDrafter | None = None
) -> Scratch:
    """The scratch of a bound plan, its head's slots left out where it has none here."""
    ops, width = list(_of_layers(plan.layers)), plan.width
    taps = len(drafter.taps) if drafter is not None else int(drafts)
    matrices = [found for path, found in bound.items() if len(found.slot.shape) > 1]
    # They draw nothing, so a prompt's rows are multiplied neither with the table nor with the output matrix.
    inner = [found for path, found in bound.items() if len(found.slot.shape) > 1 and path not in ("embedding", "head")]
    vocabulary = plan.head.vocabulary
    result = vocabulary * WIDE + -(-vocabulary // 32) * 4 + DRAW_ROW + (1 + taps) * width * ROW
    return Scratch(
        code=CODE,
        graphs=_LAUNCHES * len(plan.layers) * LAUNCH_LAYER,
        results=LAUNCH_ROWS * result,
        rounds=MOST_ROWS * (BASE * width * ROW + max((round_row(op, width) for op in ops), default=0)),
        unpacked=max((_unpacked(found.slot.shape) for found in inner), default=0),
        head=_head(plan, drafter, drafts=drafts),
        rounding=_ROUNDED * len(matrices),
        row=(BASE + taps) * width * ROW + max((chunk_row(op, width) for op in ops), default=0),
    )


def host_growth(plan: DecoderPlan, bound: Mapping[str, Bound]) -> int:
    """The most bytes of the machine's memory that a load adds to what the process held when it began.

    Slots of one product are read at a time, scales and biases of codes as float32; of experts one by one. Launches are
    captured when all are read.
    """
    read = (
        _as_read(found) * (1 if path in ("embedding", "head") else _SIDE_BY_SIDE)
        for path, found in bound.items()
        if len(found.slot.shape) > 1
    )
    return HOST + max(HOST_LAYER * len(plan.layers), max(read, default=0))


def _as_read(found: Bound) -> int:
    values, storage = math.prod(found.slot.shape[-2:]), found.storage
    if isinstance(storage, Affine):
        return values * storage.bits // 8 + 2 * WIDE * values // storage.group
    return values * (WIDE if storage.dtype == "F32" else ROW)


def _of_layers(layers: Iterable[Layer]) -> Iterator[Op]:
    """Every op of some layers."""
    for sublayer in (each for layer in layers for each in layer):
        if isinstance(sublayer.op, Parallel):
            yield from (branch.op for branch in sublayer.op.branches)
        else:
            yield sublayer.op


def chunk_row(op: Op, width: int) -> int:
    """The most bytes that one row of a prompt's chunk takes inside an op, its result among them."""
    out = width * ROW
    if isinstance(op, SwiGLU | FeedForward):
        up, hidden = _mlp(op)
        return max(up + hidden, hidden + out)
    if isinstance(op, MixtureOfExperts):
        return _experts(op, width)
    if isinstance(op, Attention):
        return _projected(op) + 2 * op.heads * op.head_dim * ROW + out
    if isinstance(op, GatedDelta):
        values = op.value_heads * op.value_dim
        read = (op.conv.channels + values + 2 * op.value_heads) * ROW
        mixed = op.conv.channels * ROW + op.value_heads * _DELTA_GATES * WIDE
        parts = op.value_heads * (2 * _DELTA_BLOCK * ROW + _DELTA_GATES * WIDE)
        return read + mixed + values * ROW + max(parts, values * ROW + out)
    if isinstance(op, Mamba2):
        inner = op.heads * op.head_dim
        read = (inner + op.conv.channels + op.heads) * ROW + op.conv.channels * ROW
        return read + op.heads * WIDE + inner * (WIDE + ROW) + out
    return 0


def round_row(op: Op, width: int) -> int:
    """The same of a row of a round: attention hands on what every partition of the keys gave."""
    if isinstance(op, Attention):
        return chunk_row(op, width) + op.heads * partitions(op.kv_heads) * (op.head_dim + 2) * WIDE
    if isinstance(op, MixtureOfExperts):
        up, hidden = _mlp(op.expert)
        return _slots(op) * (up + hidden + width * WIDE) + width * WIDE
    return chunk_row(op, width)


def partitions(groups: int) -> int:
    """The most parts that a decoded row's keys are cut into, for so many key heads."""
    whole = _UNITS // groups + 1
    return min(_MOST_PARTS, max(_LEAST_PARTS, 1 << max(0, (whole - 1).bit_length() - 1)))


def _projected(op: Attention) -> int:
    return ((2 if op.output_gate else 1) * op.heads + 2 * op.kv_heads) * op.head_dim * ROW


def _mlp(op: SwiGLU | FeedForward) -> tuple[int, int]:
    """Bytes of a row of the first product, and of what it is made into."""
    return (2 if isinstance(op, SwiGLU) else 1) * op.width * ROW, op.width * ROW


def _slots(op: MixtureOfExperts) -> int:
    """Experts that a row passes: those it chose, and the shared one where it lies among them."""
    shared = op.shared
    folded = shared is not None and not shared.gated and not op.latent and not shared.op.width % op.expert.width
    return op.router.chosen + (shared.op.width // op.expert.width if folded and shared is not None else 0)


def _experts(op: MixtureOfExperts, width: int) -> int:
    inputs, slots = op.latent or width, _slots(op)
    up, hidden = _mlp(op.expert)
    squared = isinstance(op.expert, FeedForward)  # made in place of what it is made of
    pair = inputs * ROW + up + (0 if squared else hidden) + inputs * ROW + 2 * INDEX + WIDE
    apart = 0
    if op.shared is not None and slots == op.router.chosen:
        apart = width * WIDE + sum(_mlp(op.shared.op))
    return slots * pair + op.router.experts * WIDE + (inputs + width) * ROW * bool(op.latent) + width * ROW + apart


def _unpacked(shape: tuple[int, ...]) -> int:
    """Bytes of a slot's values in bf16, with another's beside them; of experts as many as there is room for."""
    return ROW * max(_SIDE_BY_SIDE * math.prod(shape[-2:]), min(STACK, math.prod(shape)) if len(shape) > 2 else 0)


def _head(plan: DecoderPlan, drafter: DFlashDrafter | None, *, drafts: bool) -> int:
    """A head's launches; of a drafter also its rows' taps, and its own room for matrices that are unpacked."""
    if drafter is not None:
        shapes = [w.shape for w in drafter_weights(drafter).values() if w.rule == "matrix" and len(w.shape) > 1]
        tapped = MOST_ROWS * len(drafter.taps) * drafter.width * ROW
        return HEAD + tapped + max((_unpacked(shape) for shape in shapes), default=0)
    if not drafts or plan.mtp is None:
        return 0
    rows = [round_row(op, plan.width) for op in _of_layers(plan.mtp.layers)]
    return HEAD + MOST_ROWS * (BASE * plan.width * ROW + max(rows, default=0))
