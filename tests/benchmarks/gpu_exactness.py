"""What exactness costs: our products against the best of many that may break it, shape by shape and row count.

Rivals are free to choose by row count how K is split, to add up by atomics, and to use another arithmetic: a Triton
kernel in a listed set of tilings, torch's own 4-bit product where the card has it, and our own kernel with K cut in
other ways. The best one of each row count is taken; ours has one cut of K a shape, whatever the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from tensorfold.kernels.cuda.affine_rows import RowKernels
from tensorfold.kernels.cuda.compiler import Compiling
from tensorfold.kernels.cuda.driver import DriverError
from tensorfold.kernels.cuda.row_tilings import Cut, Matrix, Tiling, shared_bytes, tiling
from tests.benchmarks.gpu_device import FLUSHED, captured, filled, random_parts, row_kernels, seconds, silent, stream
from tests.benchmarks.gpu_figures import Bound
from tests.benchmarks.gpu_matmul import size

SHAPES = {
    "gate_up": Matrix(34816, 5120, 4),
    "down": Matrix(5120, 17408, 4),
    "lin_in": Matrix(16384, 5120, 4),
    "o": Matrix(5120, 6144, 4),
}
ROWS = (1, 4, 8, 16)
WEIGHT = {"gate_up": 64, "down": 64, "lin_in": 48, "o": 64}
"""How often a token of the 27B needs each shape."""
LEAST_RIVALS = 40
LONGEST = 40
"""Groups of a part of K up to which it is tried with x in registers."""
BOUNDS = (
    Bound("cost at 1 row", most=0.05),
    Bound("cost at 4 rows", most=0.03),
    Bound("cost at 8 rows", most=0.03),
    Bound("cost at 16 rows", most=0.03),
)
Say = Callable[[str], None]
Best = dict[int, tuple[float, str]]
"""Seconds of the best rival by row count, and which it was."""


@triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator, unused-ignore]
def free_product(  # type: ignore[no-untyped-def]
    x, words, scales, biases, out, rows, outputs, inputs,
    wide: tl.constexpr, deep: tl.constexpr, parts: tl.constexpr,
):  # fmt: skip
    """Up to 16 rows times 4-bit codes in groups of 64; `parts` programs share K and add up in whatever order they end.

    x bf16 [rows, K]; words int32 [N, K / 8]; scales, biases bf16 [N, K / 64]; out float32 [rows, N], zeroed before
    where `parts` is more than 1.
    """
    at_n = tl.program_id(0) * wide + tl.arange(0, wide)
    at_m = tl.arange(0, 16)
    total = tl.zeros([16, wide], tl.float32)
    eight = tl.arange(0, 8)
    for start in range(tl.program_id(1) * deep, inputs, parts * deep):
        at_w = start // 8 + tl.arange(0, deep // 8)
        keep = (at_n[:, None] < outputs) & (at_w[None, :] < inputs // 8)
        packed = tl.load(words + at_n[:, None] * (inputs // 8) + at_w[None, :], mask=keep, other=0)
        codes = (packed[:, :, None] >> (4 * eight)[None, None, :]) & 15
        at_g = start // 64 + tl.arange(0, deep // 64)
        keep = (at_n[:, None] < outputs) & (at_g[None, :] < inputs // 64)
        scale = tl.load(scales + at_n[:, None] * (inputs // 64) + at_g[None, :], mask=keep, other=0.0)
        bias = tl.load(biases + at_n[:, None] * (inputs // 64) + at_g[None, :], mask=keep, other=0.0)
        values = tl.reshape(codes, (wide, deep // 64, 64)).to(x.dtype.element_ty) * scale[:, :, None] + bias[:, :, None]
        at_k = start + tl.arange(0, deep)
        keep = (at_m[:, None] < rows) & (at_k[None, :] < inputs)
        given = tl.load(x + at_m[:, None] * inputs + at_k[None, :], mask=keep, other=0.0)
        total = tl.dot(given, tl.trans(tl.reshape(values, (wide, deep)).to(x.dtype.element_ty)), total)
    where = out + at_m[:, None] * outputs + at_n[None, :]
    keep = (at_m[:, None] < rows) & (at_n[None, :] < outputs)
    if parts == 1:
        tl.store(where, total, mask=keep)
    else:
        tl.atomic_add(where, total, mask=keep)


@dataclass(frozen=True, slots=True)
class Rival:
    """Outputs a program, inputs a step, programs that share K, warps."""

    wide: int
    deep: int
    parts: int
    warps: int


def listed() -> Iterator[Rival]:
    """The listed rivals."""
    for wide, deep in ((16, 128), (16, 256), (32, 64), (32, 128), (32, 256), (64, 64), (64, 128), (128, 64)):
        for parts in (1, 4, 16):
            for warps in (4, 8):
                yield Rival(wide, deep, parts, warps)


def launched(rival: Rival, x: Any, parts: Any, out: Any, matrix: Matrix, rows: int) -> None:
    """One product by a rival."""
    words, scales, biases = parts
    if rival.parts > 1:
        out[:rows].zero_()
    grid = (-(-matrix.outputs // rival.wide), rival.parts)
    free_product[grid](
        x, words, scales, biases, out, rows, matrix.outputs, matrix.inputs,
        rival.wide, rival.deep, rival.parts, num_warps=rival.warps,
    )  # fmt: skip


def rivals(matrix: Matrix, copies: int, say: Say) -> Best:
    """Seconds of the best rival by row count, and which it was."""
    weights = [random_parts(matrix, 7 + copy) for copy in range(copies)]
    x = torch.randn(16, matrix.inputs, device="cuda").bfloat16()
    out = torch.zeros(16, matrix.outputs, device="cuda")
    best: Best = {}
    for rival in listed():
        for rows in ROWS:

            def queue(rival: Rival = rival, rows: int = rows) -> None:
                for parts in weights:
                    launched(rival, x, parts, out, matrix, rows)

            took = seconds(captured(queue).replay, 3, 1) / copies
            if rows not in best or took < best[rows][0]:
                best[rows] = took, f"{rival}"
    own = _library(matrix, copies, say)
    for rows, took in own.items():
        if took < best[rows][0]:
            best[rows] = took, "torch's 4-bit product"
    return best


def _library(matrix: Matrix, copies: int, say: Say) -> dict[int, float]:
    """Seconds of torch's own 4-bit product by row count; nothing where this torch has none."""
    found: dict[int, float] = {}
    for inner in (2, 4, 8):
        try:
            packed = [_packed(matrix, inner, copy) for copy in range(copies)]
            zeros = torch.ones(matrix.inputs // 64, matrix.outputs, 2, device="cuda").bfloat16()
            for rows in ROWS:
                x = torch.randn(rows, matrix.inputs, device="cuda").bfloat16()

                def queue(x: Any = x, packed: list[Any] = packed, zeros: Any = zeros) -> None:
                    for one in packed:
                        torch._weight_int4pack_mm(x, one, 64, zeros)

                took = seconds(captured(queue).replay, 3, 1) / copies
                found[rows] = min(found.get(rows, took), took)
        except (RuntimeError, AttributeError) as lacking:
            say(f"torch's own product with {inner} is left out: {str(lacking).splitlines()[0][:100]}")
    return found


def _packed(matrix: Matrix, inner: int, seed: int) -> Any:
    chance = torch.Generator("cuda").manual_seed(seed)
    shape = (matrix.outputs, matrix.inputs // 2)
    codes = torch.randint(0, 256, shape, device="cuda", generator=chance, dtype=torch.int32).to(torch.uint8)
    return torch._convert_weight_to_int4pack(codes, inner)


def is_right(matrix: Matrix) -> bool:
    """Whether the rivals compute the product at all: a rival that does not is none."""
    from tests.benchmarks.gpu_device import dequantized

    parts = random_parts(matrix, 3)
    x = torch.randn(16, matrix.inputs, device="cuda").bfloat16()
    true = x.double() @ dequantized(matrix, parts).T
    held = True
    for rival in (Rival(32, 128, 1, 4), Rival(64, 64, 4, 8)):
        out = torch.zeros(16, matrix.outputs, device="cuda")
        launched(rival, x, parts, out, matrix, 16)
        held = held and float((out.double() - true).norm() / true.norm()) < 1e-2
    return held


def ours(kernels: RowKernels, matrix: Matrix, copies: int) -> dict[int, float]:
    """Seconds of the product that decoding uses, by row count."""
    found = _timed(matrix, copies, {rows: [("ours", kernels.rows(matrix, rows))] for rows in ROWS})
    return {rows: took for rows, (took, _) in found.items()}


def cuts(kernels: RowKernels, matrix: Matrix) -> Iterator[tuple[int, Cut, Tiling]]:
    """Our own kernel with K cut in every way that fits, by row count; what decoding takes is among them.

    Each cut comes tiled as any is, and as the shape's own form is, which keeps x in registers.
    """
    most = kernels.device.shared_bytes
    for rows in ROWS:
        for blocks in (1, 2, 4, 8):
            for columns in (1, 2, 4, 8):
                cut, ways = Cut(blocks, columns), dict[Tiling, None]()
                with suppress(ValueError):
                    ways[replace(tiling(matrix, cut, rows, most), early=1, behind=rows > 8)] = None
                own = kernels.chosen(matrix, rows)
                if isinstance(own, tuple):
                    again = cut_again(matrix, own, cut)
                    if again is not None and shared_bytes(matrix, cut, again, rows) <= most - 1024:
                        ways[again] = None
                yield from ((rows, cut, way) for way in ways)


def cut_again(matrix: Matrix, own: tuple[Cut, Tiling], cut: Cut) -> Tiling | None:
    """The shape's own form with K cut otherwise; None where a tile does not come out even or parts are too long.

    Parts whose x is in registers are written out whole, which takes long to compile.
    """
    part, form = -(-matrix.groups // cut.parts), own[1]
    warps = max(1, form.warps * own[0].columns // cut.columns)
    copy = -(-part // -(-part // form.copy))
    made = replace(form, warps=warps, copy=copy, kept=min(form.kept, part))
    return None if made.outputs % (16 * cut.blocks) or (made.kept and part > LONGEST) else made


def compile_cuts(kernels: RowKernels, folder: Path) -> None:
    """Compile all of them side by side."""
    compiling = Compiling(folder, silent)
    for matrix in SHAPES.values():
        for _, cut, way in cuts(kernels, matrix):
            compiling.ask(kernels.source(matrix, cut, way, False))
    compiling.finish()
    compiling.close()


def other_cuts(kernels: RowKernels, matrix: Matrix, copies: int, say: Say) -> tuple[Best, int]:
    """Seconds of the best other cut by row count, which it is, and how many there were at one of them."""
    launches: dict[int, list[tuple[str, Any]]] = {rows: [] for rows in ROWS}
    for rows, cut, way in cuts(kernels, matrix):
        named = f"our kernel, K in {cut.blocks} x {cut.columns} parts"
        try:
            launches[rows].append((named, kernels.prepare(matrix, cut, way, rows)))
        except (ValueError, DriverError) as lacking:
            say(f"{named}, with {rows} rows is left out: {str(lacking)[:100]}")
    return _timed(matrix, copies, launches), min(len({named for named, _ in each}) for each in launches.values())


def _timed(matrix: Matrix, copies: int, launches: Mapping[int, Sequence[tuple[str, Any]]]) -> Best:
    """Seconds of the fastest launch of each row count, and its name."""
    weights = filled(matrix, copies)
    x = torch.randn(16, matrix.inputs, device="cuda").bfloat16()
    y = torch.empty(16, matrix.outputs, device="cuda", dtype=torch.bfloat16)
    found: Best = {}
    for rows, each in launches.items():
        for named, launch in each:

            def queue(launch: Any = launch) -> None:
                for weight in weights:
                    launch(weight.data_ptr(), x.data_ptr(), y.data_ptr(), stream(), True)

            took = seconds(captured(queue).replay) / copies
            if rows not in found or took < found[rows][0]:
                found[rows] = took, named
    return found


def measure(folder: Path, say: Say) -> tuple[dict[str, Any], dict[str, float], bool]:
    """Times of every shape, the cost by row count over a token's products, and whether the rivals are right."""
    right, kernels = is_right(Matrix(512, 1024, 4)), row_kernels(folder)
    found: dict[str, Any] = {"rivals": len(list(listed())) + 3}
    mine, best = {}, {}
    for name, matrix in SHAPES.items():
        mine[name] = ours(kernels, matrix, _copies(matrix))
        best[name] = rivals(matrix, _copies(matrix), say)
        torch.cuda.empty_cache()
    try:
        found["other cuts"] = _against_cuts(kernels, folder, best, say)
    except RuntimeError as fault:  # a cut that nobody decodes with may not run; the other rivals stand
        say(f"our kernel with other cuts of K is left out: {str(fault).splitlines()[0][:100]}")
    for name in SHAPES:
        found[name] = {
            rows: {"ours us": mine[name][rows] * 1e6, "rival us": took * 1e6, "rival": rival}
            for rows, (took, rival) in best[name].items()
        }
        shown = ", ".join(
            f"{r}: {mine[name][r] * 1e6:.1f} against {best[name][r][0] * 1e6:.1f} us ({best[name][r][1]})" for r in ROWS
        )
        say(f"{name}: {shown}")
    values = {}
    for rows in ROWS:
        total = sum(WEIGHT[name] * mine[name][rows] for name in SHAPES)
        # A rival that is slower than ours is not what exactness is measured by: there it costs nothing.
        free = sum(WEIGHT[name] * min(best[name][rows][0], mine[name][rows]) for name in SHAPES)
        values[f"cost at {rows} row{'s' if rows > 1 else ''}"] = total / free - 1
    return found, values, right


def _copies(matrix: Matrix) -> int:
    return max(2, -(-FLUSHED // size(matrix)))


def _against_cuts(kernels: RowKernels, folder: Path, best: dict[str, Best], say: Say) -> dict[str, int]:
    """Enter our own kernel with other cuts where it is faster; how many there were of each shape."""
    compile_cuts(kernels, folder)
    counts = {}
    for name, matrix in SHAPES.items():
        others, counts[name] = other_cuts(kernels, matrix, _copies(matrix), say)
        for rows, (took, named) in others.items():
            if took < best[name][rows][0]:
                best[name][rows] = took, named
        torch.cuda.empty_cache()
    return counts
