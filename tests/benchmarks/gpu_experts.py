"""Grouped experts on the card: every pair equal, bit for bit, to its expert alone, and times of a Nemotron layer."""

from __future__ import annotations

from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.cuda.affine_rows import MOST_PAIRS, RowKernels
from tensorfold.kernels.cuda.row_tilings import Matrix, tiling
from tests.benchmarks.gpu_device import captured, filled, packed, random_parts, row_kernels, seconds, stream

UP, DOWN = Matrix(1856, 2688, 4), Matrix(2688, 1856, 4)
EXPERTS, SLOTS = 128, 8  # six of 128 and a shared one that is two experts wide
ROWS = (1, 2, 4, 8, 16, 32)


def grouped(chosen: list[list[int]], by_pair: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Items and members of rows that chose experts, an expert's rows together, up to 8 an item; y has a row a pair."""
    wanted: dict[int, list[tuple[int, int]]] = {}
    for row, experts in enumerate(chosen):
        for slot, expert in enumerate(experts):
            pair = row * len(experts) + slot
            wanted.setdefault(expert, []).append((pair if by_pair else row, pair))
    items: list[tuple[int, int, int]] = []
    members: list[tuple[int, int]] = []
    for expert, pairs in sorted(wanted.items()):
        for first in range(0, len(pairs), 8):
            some = pairs[first : first + 8]
            items.append((expert, len(members), len(some)))
            members += some
    flat = [len(items), *(number for item in items for number in item)]
    members += [(0, 0)] * (MOST_PAIRS - len(members))
    return torch.tensor(flat, dtype=torch.int32).cuda(), torch.tensor(members, dtype=torch.int32).cuda()


def check(kernels: RowKernels) -> list[str]:
    """What was not equal."""
    wrong = []
    for matrix, by_pair in ((UP, False), (DOWN, True), (Matrix(200, 512, 4), False)):
        parts = [random_parts(matrix, 900 + expert) for expert in range(12)]
        single = [packed(matrix, part) for part in parts]
        stack = torch.cat(single)
        for rows in (1, 3, 16, 30):
            chance = torch.Generator().manual_seed(rows)
            chosen = [torch.randperm(12, generator=chance)[:SLOTS].tolist() for _ in range(rows)]
            pairs = rows * SLOTS
            x = torch.randn(pairs if by_pair else rows, matrix.inputs, device="cuda").bfloat16()
            y = torch.full((pairs, matrix.outputs), float("nan"), device="cuda", dtype=torch.bfloat16)
            items, members = grouped(chosen, by_pair)
            launch = kernels.experts(matrix, len(x), pairs)
            launch(stack.data_ptr(), x.data_ptr(), y.data_ptr(), items.data_ptr(), members.data_ptr(), stream(), False)
            way = kernels.expert_cut(matrix, pairs // len(x))
            alone = torch.empty_like(y)
            one = kernels.prepare(matrix, way, tiling(matrix, way, 1, kernels.device.shared_bytes), 1)
            for row, experts in enumerate(chosen):
                for slot, expert in enumerate(experts):
                    pair = row * SLOTS + slot
                    source = x[pair if by_pair else row]
                    one(single[expert].data_ptr(), source.data_ptr(), alone[pair].data_ptr(), stream(), False)
            torch.cuda.synchronize()
            if not torch.equal(y, alone):
                wrong.append(f"{matrix.outputs} x {matrix.inputs}, {rows} rows")
            print(f"experts {matrix.outputs} x {matrix.inputs}, {rows} rows: {torch.equal(y, alone)}", flush=True)
    return wrong


def measure(kernels: RowKernels) -> dict[str, dict[int, float]]:
    """Seconds of one projection by rows that choose at random, over four layers' experts."""
    found: dict[str, dict[int, float]] = {}
    for name, matrix, by_pair in (("up", UP, False), ("down", DOWN, True)):
        stacks = [torch.cat(filled(matrix, EXPERTS + 2)) for _ in range(4)]
        found[name] = {}
        for rows in ROWS:
            pairs = rows * SLOTS
            x = torch.randn(pairs, matrix.inputs, device="cuda").bfloat16()
            y = torch.empty(pairs, matrix.outputs, device="cuda", dtype=torch.bfloat16)
            routes = [
                grouped([[*torch.randperm(EXPERTS)[:6].tolist(), EXPERTS, EXPERTS + 1] for _ in range(rows)], by_pair)
                for _ in range(16)
            ]
            launch = kernels.experts(matrix, pairs if by_pair else rows, pairs)

            def queue(launch=launch, routes=routes, x=x, y=y, stacks=stacks) -> None:  # type: ignore[no-untyped-def]
                for i, (items, members) in enumerate(routes):
                    lists = items.data_ptr(), members.data_ptr()
                    launch(stacks[i % 4].data_ptr(), x.data_ptr(), y.data_ptr(), *lists, stream(), True)

            found[name][rows] = seconds(captured(queue).replay) / len(routes)
        print(f"experts {name:5}" + "  ".join(f"{r}: {t * 1e6:.1f} us" for r, t in found[name].items()), flush=True)
    return found


def run(folder: Path) -> tuple[list[str], dict[str, dict[int, float]]]:
    """The faults and the times."""
    kernels = row_kernels(folder)
    return check(kernels), measure(kernels)
