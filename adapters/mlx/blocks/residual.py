"""How an op's input is read from the residual and its output written back: plainly, or through hyper-connections.

Streams lie side by side in a row. Weights of streams are float32 sums inside one row, in a fixed order.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import NormBlock
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.domain.families.plans import HyperConnections, Plain, Residual

A = TypeVar("A")


class ResidualBlock(Protocol[A]):
    """One site of the residual; streams lie side by side in a row [R, streams * D]."""

    def read(self, stream: A) -> tuple[A, Any]:
        """The op's input [R, D] before its norm, and what `write` needs of this pass."""
        ...

    def write(self, stream: A, made: A, mix: Any) -> A:
        """The residual with the op's output in it."""
        ...


class PlainResidual(Generic[A]):
    """x + f(x)."""

    def __init__(self, ops: RowOps[A]) -> None:
        self._ops = ops

    def read(self, stream: A) -> tuple[A, None]:
        """The residual itself."""
        return stream, None

    def write(self, stream: A, made: A, mix: None) -> A:
        """Their sum."""
        return self._ops.add(stream, made)


class LowRankMixer(Generic[A]):
    """The mean of the normed streams, each value through a sigmoid gate of low rank.

    `read` gives [R, D] and, where the site also writes, a weight for each stream [R, streams] in float32. The form is
    that of transformers' qwen4_exp.
    """

    def __init__(self, assembly: Assembly[A], plan: HyperConnections, path: str, *, writes: bool) -> None:
        self._ops, self._streams = assembly.ops, plan.streams
        self._norm = NormBlock(assembly, plan.norm, f"{path}.norm")
        names = ("down", "inject") if writes else ("down",)
        self._project = LinearBlock(assembly, tuple(f"{path}.{name}" for name in names))
        self._up = LinearBlock(assembly, (f"{path}.up",))

    def read(self, stream: A) -> tuple[A, Any]:
        """The op's input, and the weights its output is written with."""
        ops = self._ops
        normed = self._norm(stream)
        down, *inject = self._project.split(normed)
        narrowed: Any = ops.wide(down)
        narrowed = narrowed * (1.0 / self._streams)
        gate: Any = ops.sigmoid(ops.wide(self._up(ops.narrow(narrowed * ops.sigmoid(narrowed)))))
        weighed = gate * ops.wide(normed)
        mean = _sum(_split(weighed, self._streams)) * (1.0 / self._streams)
        if not inject:
            return ops.narrow(mean), None
        written: Any = ops.wide(inject[0])
        weights: Any = ops.sigmoid(written * (1.0 / self._streams))
        return ops.narrow(mean), 2.0 * weights

    def write(self, stream: A, made: A, mix: Any) -> A:
        """The op's output times each stream's weight, added to it."""
        ops = self._ops
        streams = _split(ops.wide(stream), self._streams)
        wide: Any = ops.wide(made)
        return ops.narrow(_join(streams + mix[:, :, None] * wide[:, None, :]))


class SinkhornResidual(Generic[A]):
    """Streams weighed into the op, its output weighed into each, and the streams mixed by a doubly stochastic matrix.

    All weights come from one float32 projection of the streams divided by their root mean square. Source:
    manifold-constrained hyper-connections (arXiv 2512.24880).
    """

    def __init__(self, assembly: Assembly[A], plan: HyperConnections, path: str) -> None:
        ops, weights = assembly.ops, assembly.weights
        self._ops, self._plan = ops, plan
        self._product = ops.float32_product([weights.matrix(f"{path}.projection")])
        self._base = ops.float32(weights.floats(f"{path}.base"))
        self._scale = [float(value) for value in weights.floats(f"{path}.scale")]

    def read(self, stream: A) -> tuple[A, Any]:
        """The op's input, and what its output and the streams are weighed with when they meet again."""
        ops, count, eps = self._ops, self._plan.streams, self._plan.eps
        wide: Any = ops.wide(stream)
        made: Any = self._product(ops.norm(wide, None, self._plan.norm.eps))
        base: Any = self._base
        into: Any
        out_of: Any
        into, out_of, combine = (
            made[:, start:stop] * scale + base[start:stop]
            for scale, (start, stop) in zip(self._scale, _kinds(count), strict=True)
        )
        into, out_of = ops.sigmoid(into), ops.sigmoid(out_of)
        entered = _sum(_split(wide, count) * (into + eps)[:, :, None])
        return ops.narrow(entered), (2.0 * out_of, self._doubly_stochastic(combine))

    def write(self, stream: A, made: A, mix: Any) -> A:
        """Stream i: its weight times the output, plus every stream k times combine[k, i]."""
        ops = self._ops
        out_of, combine = mix
        streams = _split(ops.wide(stream), self._plan.streams)
        wide: Any = ops.wide(made)
        total = out_of[:, :, None] * wide[:, None, :]
        for k in range(self._plan.streams):
            total = total + combine[:, k, :, None] * streams[:, k, None, :]
        return ops.narrow(_join(total))

    def _doubly_stochastic(self, combine: Any) -> Any:
        """A softmax over each row, then columns and rows divided by their sums in turn."""
        count, eps = self._plan.streams, self._plan.eps
        square: Any = self._ops.softmax(combine.reshape(-1, count, count))
        return self._ops.balance(square + eps, self._plan.iterations, eps)


def residual_block(assembly: Assembly[A], plan: Residual, path: str) -> ResidualBlock[A]:
    """The block of a residual's form."""
    if isinstance(plan, Plain):
        return PlainResidual(assembly.ops)
    if plan.form == "lowrank":
        return LowRankMixer(assembly, plan, path, writes=True)
    return SinkhornResidual(assembly, plan, path)


def stream_mean(ops: RowOps[A], stream: A, streams: int) -> A:
    """The mean [R, D] of the streams [R, streams * D]."""
    return ops.narrow(_sum(_split(ops.wide(stream), streams)) * (1.0 / streams))


def _kinds(count: int) -> tuple[tuple[int, int], ...]:
    """Where the reading, the writing and the combining values stand in a projection."""
    return (0, count), (count, 2 * count), (2 * count, count * (count + 2))


def _split(rows: Any, streams: int) -> Any:
    """[R, streams * D] seen as [R, streams, D]."""
    return rows.reshape(rows.shape[0], streams, -1)


def _join(streams: Any) -> Any:
    return streams.reshape(streams.shape[0], -1)


def _sum(streams: Any) -> Any:
    """The sum over streams [R, streams, D], first to last."""
    total = streams[:, 0]
    for index in range(1, streams.shape[1]):
        total = total + streams[:, index]
    return total
