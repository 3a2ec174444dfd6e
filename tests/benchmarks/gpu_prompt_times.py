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


def products_times() -> dict[str, Any]:
    """TFLOP/s of each way of cutting, the library's, and what unpacking takes, by shape."""
    found: dict[str, Any] = {}
    once = torch.ones(1, dtype=torch.int32, device="cuda")
    for name, (outputs, inputs, _) in {**QWEN, **NEMOTRON}.items():
        w = torch.randn(-(-outputs // 16) * 16, inputs, device="cuda").bfloat16()
        blocks = new_blocks(outputs, inputs, 4, "cuda").fill_(0x3C003C00)
        unpack = timed(partial(dequantize, blocks, 4, w, once))
        moved = w.numel() * 2 + blocks.numel() * 4
        found[name] = {"unpack_us": unpack * 1e6, "unpack_gb_s": moved / unpack / 1e9}
        for rows in (2048, 4096, 512) if name == "gate_up" else (2048,):
            x = torch.randn(rows, inputs, device="cuda").bfloat16()
            out = torch.empty(rows, outputs, device="cuda", dtype=torch.bfloat16)
            work = 2e-12 * rows * outputs * inputs
            library = timed(partial(matmul, x, w, outputs))
            rates = {"library": work / library}
            for tiles in CUTS:
                taken = timed(partial(multiply, x, w, out, tiles, programs()), 3)
                rates[short(tiles)] = work / taken
            found[name][rows] = rates
            best = sorted((item for item in rates.items() if item[1] == item[1]), key=lambda item: -item[1])[:4]
            told = f"unpack {unpack * 1e6:.0f} us ({moved / unpack / 1e9:.0f} GB/s), library {rates['library']:.0f}; "
            told += ", ".join(f"{k} {v:.0f}" for k, v in best)
            print(f"{name:9} {outputs} x {inputs} T {rows}: {told} TFLOP/s", flush=True)
    return found


def expert_times() -> dict[str, Any]:
    """TFLOP/s of grouped products by way of cutting, and microseconds of what is around them."""
    found: dict[str, Any] = {}
    up = torch.randn(ENTRIES, 1856, HIDDEN, device="cuda").bfloat16()
    down = torch.randn(ENTRIES, HIDDEN, 1856, device="cuda").bfloat16()
    blocks = new_blocks(ENTRIES * 1856, HIDDEN, 4, "cuda").fill_(0x3C003C00)
    used = torch.ones(ENTRIES, dtype=torch.int32, device="cuda")
    unpack = timed(partial(dequantize, blocks, 4, up, used))
    for rows in (2048, 4096):
        ids, weights = routes(rows)
        x = torch.randn(rows, HIDDEN, device="cuda").bfloat16()
        order, places, _, _ = sort_pairs(ids, ENTRIES, 128)
        given = x[order // SLOTS]
        hidden = torch.randn(len(given), 1856, device="cuda").bfloat16()
        wide, narrow = torch.empty_like(given), torch.empty_like(hidden)
        out = torch.empty(rows, HIDDEN, device="cuda")
        work = 2e-12 * rows * SLOTS * 1856 * HIDDEN
        rates: dict[str, float] = {}
        for tiles in EXPERT_CUTS:
            table = sort_pairs(ids, ENTRIES, tiles.m)[3]
            ways = (("up", given, up, narrow, True), ("down", hidden, down, wide, False))
            for name, left, right, made, square in ways:
                product = partial(multiply_groups, left, right, made, table, (0, ENTRIES), tiles, square)
                taken = timed(product, 3)
                rates[f"{name} {short(tiles)}"] = work / taken
        around = {
            "sort": timed(partial(sort_pairs, ids, ENTRIES, 128)),
            "gather": timed(partial(gathered, x, order)),
            "sum": timed(partial(sum_slots, wide, places, weights, out)),
            "unpack one stack": unpack,
        }
        found[str(rows)] = {"tflop_s": rates, "us": {name: t * 1e6 for name, t in around.items()}}
        print(f"experts T {rows}: " + ", ".join(f"{k} {v:.0f}" for k, v in rates.items()) + " TFLOP/s")
        print("  " + ", ".join(f"{k} {v * 1e6:.0f} us" for k, v in around.items()), flush=True)
    return found


def layer_times(products: Products) -> dict[str, Any]:
    """A Nemotron layer of experts: a prompt's milliseconds, a round's microseconds in a graph, and its parts."""
    begun = time.perf_counter()
    card = torch.device("cuda")
    assembly = Assembly(products.weights, products, room(1, 4096), card, torch.bfloat16, "bfloat16")
    block = ExpertsBlock(assembly, LAYER, "m")
    torch.cuda.synchronize()
    found: dict[str, Any] = {"loading_s": time.perf_counter() - begun}
    print(f"packed 130 experts in {found['loading_s']:.1f} s", flush=True)
    for rows in (32, 512, 2048, 4096):
        x = torch.randn(rows, HIDDEN, device="cuda").bfloat16()
        found[f"prompt {rows}"] = timed(partial(block.prompt, x, None)) * 1e3
    for rows in (1, 2, 4, 8, 16, 32, 64):
        given = [torch.randn(rows, HIDDEN, device="cuda").bfloat16() for _ in range(12)]

        def queue(given: list[Tensor] = given) -> None:
            for x in given:
                block.decode(x, None)

        found[f"round {rows}"] = seconds(captured(queue).replay) / len(given) * 1e6
    lists = [torch.empty(size, dtype=torch.int32, device="cuda") for size in (800, 512, 512)]
    for rows in (1, 8, 32):
        ids = routes(rows)[0]

        def items(ids: Tensor = ids) -> None:
            for _ in range(20):
                list_items(ids, *lists)

        found[f"items {rows}"] = seconds(captured(items).replay) / 20 * 1e6
    print(", ".join(f"{k} {v:.2f}" for k, v in found.items()) + " (prompt ms; round, items us)", flush=True)
    return found
