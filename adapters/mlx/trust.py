"""What a load check found of our own kernels on this device: used where they proved right, replaced where not.

A kernel is tried before it is first needed for a shape: on rows alone and in company, whose bits must be equal, and
against MLX's own operation, which it must come close to. A kernel that fails, or that this device will not build, is
left out; nothing is served on a guess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import mlx.core as mx

UNITS = " on matrix units"
"""Ends the kind of a kernel's second form."""
_CLOSE = {mx.float32: 2e-4, mx.float16: 5e-3, mx.bfloat16: 4e-2}


@dataclass(slots=True)
class Trust:
    """Answers by kind of kernel and shape; `tried` counts shapes that were kept and that were left out."""

    answers: dict[tuple[str, Hashable], bool] = field(default_factory=dict)

    def holds(self, kind: str, shape: Hashable, probe: Callable[[], bool]) -> bool:
        """Whether a kernel may be used for a shape; a `probe` that raises says no."""
        key = (kind, shape)
        if key not in self.answers:
            try:
                self.answers[key] = probe()
            except Exception:
                # MLX says in several ways that a device cannot build or run a kernel; each of them means the same.
                self.answers[key] = False
        return self.answers[key]

    def lines(self) -> tuple[str, ...]:
        """Sentences on what was left out, and first one that sums up what is in use."""
        kept, dropped = Counter[str](), Counter[str]()
        for (kind, _), answer in self.answers.items():
            (kept if answer else dropped)[kind] += 1
        used = ", ".join(f"{kind} ({count})" for kind, count in sorted(kept.items()))
        lines = [f"Metal kernels in use, with the shapes that were checked: {used}."] if used else []
        for kind, count in sorted(dropped.items()):
            instead = "the kernel's other form serves" if kind.endswith(UNITS) else "MLX's own operations serve"
            lines.append(
                f"Metal kernels for {kind} are left out for {count} of {count + kept[kind]} shapes, whose rows did not "
                f"prove exact here: {instead} them."
            )
        return tuple(lines)


def exact_rows(call: Callable[[mx.array], mx.array], rows: mx.array, plain: Callable[[mx.array], mx.array]) -> bool:
    """Whether `call` gives each of `rows` alone the bits it has in company, and comes close to `plain`."""
    together = call(rows)
    alone = mx.concatenate([call(rows[row : row + 1]) for row in range(rows.shape[0])], axis=0)
    turned = call(rows[::-1])[::-1]
    return same_bits(together, alone) and same_bits(together, turned) and close(together, plain(rows))


def same_bits(left: mx.array, right: mx.array) -> bool:
    """Bit equality; not-a-numbers equal nothing, since none may come out."""
    return left.shape == right.shape and bool(mx.array_equal(left, right))


def close(made: mx.array, wanted: mx.array) -> bool:
    """Whether values agree as far as their dtype goes."""
    wide, other = made.astype(mx.float32), wanted.astype(mx.float32)
    scale = mx.maximum(mx.max(mx.abs(other)), 1e-6)
    return bool(mx.max(mx.abs(wide - other)) <= _CLOSE[made.dtype] * scale)


def samples(*shape: int, dtype: mx.Dtype, seed: int = 1) -> mx.array:
    """Fixed random values."""
    return mx.random.normal(shape, key=mx.random.key(seed)).astype(dtype)
