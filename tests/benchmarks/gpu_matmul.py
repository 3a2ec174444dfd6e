"""The products of one decoded token at every row count: each shape alone, then all of a 27B token in one graph.

Synthetic weights of true geometry: random codes, 4 bits in groups of 64.
"""

from __future__ import annotations

from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.cuda.affine_pack import packed_bytes
from tensorfold.kernels.cuda.affine_rows import RowKernels
from tensorfold.kernels.cuda.row_tilings import Matrix
from tests.benchmarks.gpu_device import FLUSHED, captured, filled, row_kernels, seconds, stream

ROWS = (1, 2, 4, 8, 16, 32, 64)
# A layer's products in the order of a forward pass, and how often a token needs each.
QWEN = {
    "gate_up": (Matrix(34816, 5120, 4, gated=True), 64),
    "down": (Matrix(5120, 17408, 4), 64),
    "lin_in": (Matrix(16384, 5120, 4), 48),
    "qkvg": (Matrix(14336, 5120, 4), 16),
    "o": (Matrix(5120, 6144, 4), 64),
    "lm_head": (Matrix(248320, 5120, 4), 1),
}
NEMOTRON = {
    "in_proj": (Matrix(10304, 2688, 4), 23),
    "out_proj": (Matrix(2688, 4096, 4), 29),
    "qkv": (Matrix(4608, 2688, 4), 6),
    "shared_up": (Matrix(3712, 2688, 4), 23),
    "shared_down": (Matrix(2688, 3712, 4), 23),
    "head": (Matrix(131072, 2688, 4), 1),
}


def size(matrix: Matrix) -> int:
    """Bytes of a packed matrix."""
    return packed_bytes(matrix.outputs, matrix.inputs, matrix.bits)


def shape_times(kernels: RowKernels, matrix: Matrix) -> dict[int, float]:
    """Seconds a launch by row count, over distinct weights."""
    weights = filled(matrix, max(2, -(-FLUSHED // size(matrix))))
    x = torch.randn(ROWS[-1], matrix.inputs, device="cuda").bfloat16()
    y = torch.empty(ROWS[-1], matrix.outputs, device="cuda", dtype=torch.bfloat16)
    found = {}
    for rows in ROWS:
        launch = kernels.rows(matrix, rows)

        def queue(launch=launch) -> None:  # type: ignore[no-untyped-def]
            for weight in weights:
                launch(weight.data_ptr(), x.data_ptr(), y.data_ptr(), stream(), True)

        found[rows] = seconds(captured(queue).replay) / len(weights)
    return found


def token_times(kernels: RowKernels) -> dict[int, float]:
    """Seconds for all products of a 27B token, each with weights of its own, by row count."""
    weights = {name: filled(matrix, count) for name, (matrix, count) in QWEN.items()}
    x = torch.randn(ROWS[-1], 17408, device="cuda").bfloat16()
    y = torch.empty(ROWS[-1], 248320, device="cuda", dtype=torch.bfloat16)
    found = {}
    for rows in ROWS:
        launches = {name: kernels.rows(matrix, rows) for name, (matrix, _) in QWEN.items()}

        def queue(launches=launches) -> None:  # type: ignore[no-untyped-def]
            turn = dict.fromkeys(QWEN, 0)
            for layer in range(64):
                mixer = "qkvg" if layer % 4 == 3 else "lin_in"
                for name in (mixer, "o", "gate_up", "down"):
                    weight = weights[name][turn[name]]
                    turn[name] += 1
                    launches[name](weight.data_ptr(), x.data_ptr(), y.data_ptr(), stream(), True)
            launches["lm_head"](weights["lm_head"][0].data_ptr(), x.data_ptr(), y.data_ptr(), stream(), True)

        found[rows] = seconds(captured(queue).replay)
    return found


def measure(folder: Path, read: float) -> dict[str, dict[str, dict[int, float]]]:
    """Microseconds and shares of the `read` rate for each shape, and seconds for a token."""
    kernels = row_kernels(folder)
    found: dict[str, dict[str, dict[int, float]]] = {}
    for family, shapes in (("qwen", QWEN), ("nemotron", NEMOTRON)):
        for name, (matrix, _) in shapes.items():
            times = shape_times(kernels, matrix)
            shares = {rows: size(matrix) / time / read for rows, time in times.items()}
            found[f"{family} {name}"] = {"us": {r: t * 1e6 for r, t in times.items()}, "share": shares}
            line = "  ".join(f"{t * 1e6:6.1f} ({shares[r]:3.0%})" for r, t in times.items())
            print(f"{family:8} {name:11} {matrix.outputs:6} x {matrix.inputs:5}  {line}", flush=True)
            torch.cuda.empty_cache()
    times = token_times(kernels)
    found["qwen token"] = {"ms": {r: t * 1e3 for r, t in times.items()}}
    return found
