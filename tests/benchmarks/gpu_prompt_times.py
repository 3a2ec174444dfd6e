"""Times of a prompt's kernels on the card, every way of cutting side by side, and the library's product."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.blocks.experts import ExpertsBlock
from tensorfold.adapters.cuda.packing import new_blocks
from tensorfold.adapters.cuda.products import Products
from tensorfold.domain.memory.cuda_holding import room
from tensorfold.kernels.triton.dequantize import dequantize
from tensorfold.kernels.triton.expert_items import list_items
from tensorfold.kernels.triton.prompt_experts import multiply_groups, sort_pairs, sum_slots
from tensorfold.kernels.triton.prompt_matmul import multiply
from tests.benchmarks.gpu_device import captured, seconds
from tests.benchmarks.gpu_prompt_geometry import (
    CUTS,
    ENTRIES,
    EXPERT_CUTS,
    HIDDEN,
    LAYER,
    NEMOTRON,
    QWEN,
    SLOTS,
    programs,
    routes,
    short,
)

Tensor = Any
Times = dict[str, dict[int, float]]
"""Seconds by what was run, then by its rows."""


def timed(run: Callable[[], object], repeats: int = 5) -> float:
    """Seconds of a call, several behind each other in a graph; not a number where it does not run."""

    def several() -> None:
        for _ in range(3):
            run()

    try:
        return seconds(captured(several).replay, repeats, 1) / 3
    except Exception as failed:
        print(f"  does not run: {type(failed).__name__} {str(failed)[:80]}", flush=True)
        return float("nan")


def matmul(x: Tensor, w: Tensor, outputs: int) -> None:
    """The library's product, of as many outputs."""
    torch.mm(x, w[:outputs].T)


def gathered(x: Tensor, order: Tensor) -> None:
    """Rows side by side with those of the same expert."""
    x[order // SLOTS]


def products_times() -> Times:
    """Each way of cutting, the library's, and unpacking, by shape; TFLOP/s are printed."""
    found: Times = {}
    once = torch.ones(1, dtype=torch.int32, device="cuda")
    for name, (outputs, inputs, _) in {**QWEN, **NEMOTRON}.items():
        w = torch.randn(-(-outputs // 16) * 16, inputs, device="cuda").bfloat16()
        blocks = new_blocks(outputs, inputs, 4, "cuda").fill_(0x3C003C00)
        unpack = timed(partial(dequantize, blocks, 4, w, once))
        moved = w.numel() * 2 + blocks.numel() * 4
        found[f"{name} unpacked"] = {outputs: unpack}
        for rows in (2048, 4096, 512) if name == "gate_up" else (2048,):
            x = torch.randn(rows, inputs, device="cuda").bfloat16()
            out = torch.empty(rows, outputs, device="cuda", dtype=torch.bfloat16)
            taken = {"library": timed(partial(matmul, x, w, outputs))}
            for tiles in CUTS:
                taken[short(tiles)] = timed(partial(multiply, x, w, out, tiles, programs()), 3)
            for way, time_of in taken.items():
                found.setdefault(f"{name} {way}", {})[rows] = time_of
            told = f"unpack {unpack * 1e6:.0f} us ({moved / unpack / 1e9:.0f} GB/s), "
            told += fastest(taken, 2e-12 * rows * outputs * inputs, 5)
            print(f"{name:9} {outputs} x {inputs} T {rows}: {told}", flush=True)
    return found


def fastest(taken: dict[str, float], work: float, count: int) -> str:
    """TFLOP/s of the fastest few that ran, and of the library where it is among them all."""
    ran = sorted((seconds_of, way) for way, seconds_of in taken.items() if seconds_of == seconds_of)
    shown = [item for at, item in enumerate(ran) if at < count or item[1] == "library"]
    return ", ".join(f"{way} {work / seconds_of:.0f}" for seconds_of, way in shown) + " TFLOP/s"


def expert_times() -> Times:
    """Grouped products by way of cutting, and what is around them."""
    found: Times = {}
    up = torch.randn(ENTRIES, 1856, HIDDEN, device="cuda").bfloat16()
    down = torch.randn(ENTRIES, HIDDEN, 1856, device="cuda").bfloat16()
    blocks = new_blocks(ENTRIES * 1856, HIDDEN, 4, "cuda").fill_(0x3C003C00)
    used = torch.ones(ENTRIES, dtype=torch.int32, device="cuda")
    for rows in (2048, 4096):
        ids, weights = routes(rows)
        x = torch.randn(rows, HIDDEN, device="cuda").bfloat16()
        order, places, _, _ = sort_pairs(ids, ENTRIES, 128)
        given = x[order // SLOTS]
        hidden = torch.randn(len(given), 1856, device="cuda").bfloat16()
        wide, narrow = torch.empty_like(given), torch.empty_like(hidden)
        out = torch.empty(rows, HIDDEN, device="cuda")
        ways = (("up", given, up, narrow, True), ("down", hidden, down, wide, False))
        for name, left, right, made, square in ways:
            taken = {}
            for tiles in EXPERT_CUTS:
                table = sort_pairs(ids, ENTRIES, tiles.m)[3]
                product = partial(multiply_groups, left, right, made, table, (0, ENTRIES), tiles, square)
                taken[short(tiles)] = timed(product, 3)
                found.setdefault(f"experts {name} {short(tiles)}", {})[rows] = taken[short(tiles)]
            told = fastest(taken, 2e-12 * rows * SLOTS * 1856 * HIDDEN, len(taken))
            print(f"experts {name} T {rows}: {told}", flush=True)
        around: dict[str, Callable[[], object]] = {
            "sort": partial(sort_pairs, ids, ENTRIES, 128),
            "gather": partial(gathered, x, order),
            "sum": partial(sum_slots, wide, places, weights, out),
            "unpack a stack": partial(dequantize, blocks, 4, up, used),
        }
        for name, call in around.items():
            found.setdefault(f"experts {name}", {})[rows] = timed(call)
        print("  " + ", ".join(f"{name} {found[f'experts {name}'][rows] * 1e6:.0f} us" for name in around), flush=True)
    return found


def layer_times(products: Products) -> Times:
    """A Nemotron layer of experts: packing, a prompt's rows, a round's in a graph, and its lists."""
    begun = time.perf_counter()
    card = torch.device("cuda")
    assembly = Assembly(products.weights, products, room(1, 4096), card, torch.bfloat16, "bfloat16")
    block = ExpertsBlock(assembly, LAYER, "m")
    torch.cuda.synchronize()
    found: Times = {"layer packed": {ENTRIES: time.perf_counter() - begun}}
    found |= {"layer of a prompt": {}, "layer of a round": {}, "lists of a round": {}}
    for rows in (32, 512, 2048, 4096):
        x = torch.randn(rows, HIDDEN, device="cuda").bfloat16()
        found["layer of a prompt"][rows] = timed(partial(block.prompt, x, None))
    for rows in (1, 2, 4, 8, 16, 32, 64):
        given = [torch.randn(rows, HIDDEN, device="cuda").bfloat16() for _ in range(12)]

        def queue(given: list[Tensor] = given) -> None:
            for x in given:
                block.decode(x, None)

        found["layer of a round"][rows] = seconds(captured(queue).replay) / len(given)
    lists = [torch.empty(size, dtype=torch.int32, device="cuda") for size in (800, 512, 512)]
    for rows in (1, 8, 32):
        found["lists of a round"][rows] = timed(partial(list_items, routes(rows)[0], *lists))
    for name, times in found.items():
        print(f"{name}: " + ", ".join(f"{rows} {t * 1e6:.0f}" for rows, t in times.items()) + " us", flush=True)
    return found
