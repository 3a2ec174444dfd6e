"""Stacks of experts packed on the device, entry by entry, and which shared expert may lie among them.

A shared expert that is m experts wide and not gated is m more entries whose weight is always 1: a row then passes it in
the launches that it passes its experts in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorfold.adapters.cuda.packed import check_kind, kind, pack_side_by_side, width_of
from tensorfold.adapters.cuda.packing import new_blocks
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.stored_weights import Codes, Stored, Values
from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, SwiGLU
from tensorfold.kernels.cuda.row_tilings import Matrix

if TYPE_CHECKING:
    from tensorfold.adapters.cuda.products import Products

Tensor = Any
_MOST_FOLDED = 8


@dataclass(frozen=True, slots=True, eq=False)
class PackedStack:
    """Matrices of one shape: `blocks` int32 [entries, tiles, K / 64, words]."""

    matrix: Matrix
    blocks: Tensor


def first_names(expert: SwiGLU | FeedForward) -> tuple[str, ...]:
    """The slots that read an expert's input, side by side."""
    return ("gate", "up") if isinstance(expert, SwiGLU) else ("up",)


def foldable(plan: MixtureOfExperts) -> int:
    """How many experts wide a shared expert is that may lie among them; 0 where it may not."""
    shared, expert = plan.shared, plan.expert
    if shared is None or shared.gated or plan.latent or type(shared.op) is not type(expert):
        return 0
    alike = shared.op.activation == expert.activation and not shared.op.bias and not expert.bias
    limits = {op.limit for op in (shared.op, expert) if isinstance(op, SwiGLU)}
    width, rest = divmod(shared.op.width, expert.width)
    return width if alike and not rest and width <= _MOST_FOLDED and len(limits) < 2 else 0


def pack_stack(
    products: Products, path: str, names: Sequence[str], shared: Sequence[Sequence[Stored]], entries: int
) -> PackedStack:
    """The slots `names` of every expert below `path`, one expert's side by side; then the entries of `shared`."""
    stack: PackedStack | None = None
    for entry, stored in enumerate(_entries(products, path, names, shared)):
        if stack is None:
            stack = _empty(products, f"{path}.experts.{names[-1]}", stored, entries + len(shared))
        pack_side_by_side(stored, stack.blocks[entry])
    assert stack is not None
    return stack


def shared_parts(products: Products, path: str, name: str, count: int) -> list[Stored]:
    """A slot of the shared expert in `count` parts: of its outputs, or of its inputs where they are the experts'."""
    stored = products.weights.matrix(f"{path}.shared.{name}").stored
    return [_part(stored, name == "down", at, count) for at in range(count)]


def _entries(
    products: Products, path: str, names: Sequence[str], shared: Sequence[Sequence[Stored]]
) -> Iterator[list[Stored]]:
    readers = [products.weights.entries(f"{path}.experts.{name}") for name in names]
    for matrices in zip(*readers, strict=True):
        if any(matrix.bias is not None for matrix in matrices):
            raise RefusedError(f"{path}.experts has biases, which the CUDA backend does not add yet.")
        yield [matrix.stored for matrix in matrices]
    yield from (list(parts) for parts in shared)


def _empty(products: Products, path: str, stored: Sequence[Stored], entries: int) -> PackedStack:
    if len({kind(one) for one in stored}) > 1:
        raise RefusedError(f"{path} and its gate are stored in two ways; the CUDA backend reads experts stored in one.")
    rows = [one.words if isinstance(one, Codes) else one.raw for one in stored]
    first = stored[0]
    inputs = rows[0].shape[1] * 32 // first.bits if isinstance(first, Codes) else rows[0].shape[1]
    check_kind(path, first, inputs)
    products.note_rounding(path, first)
    matrix = Matrix(sum(len(part) for part in rows), inputs, width_of(first))
    blocks = [new_blocks(matrix.outputs, inputs, matrix.bits, "meta")]
    return PackedStack(matrix, blocks[0].new_empty((entries, *blocks[0].shape), device=products.device))


def _part(stored: Stored, of_inputs: bool, at: int, count: int) -> Stored:
    def cut(values: Any) -> Any:
        size = values.shape[1 if of_inputs else 0] // count
        return values[:, at * size : (at + 1) * size] if of_inputs else values[at * size : (at + 1) * size]

    if isinstance(stored, Values):
        return Values(cut(stored.raw), stored.dtype)
    parts = cut(stored.words), cut(stored.scales), cut(stored.biases)
    return Codes(*parts, stored.bits, stored.group, stored.dtype)
