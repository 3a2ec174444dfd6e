"""What the card can do at most: copy, read, matmul, and the cost of a launch. Random data throughout."""

from __future__ import annotations

import statistics
import time

import torch  # type: ignore[import-not-found, unused-ignore]
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]

from tests.benchmarks.gpu_device import captured, seconds

READ = 4 << 30


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def read_block(source, out, block: tl.constexpr, steps: tl.constexpr):  # type: ignore[no-untyped-def]
    """Folds `steps` blocks into one word, so that nothing can be left out."""
    first = tl.program_id(0).to(tl.int64) * block * steps
    folded = tl.zeros([block], tl.int32)
    for step in range(steps):
        folded = folded ^ tl.load(source + first + step * block + tl.arange(0, block))
    tl.store(out + tl.program_id(0), tl.sum(folded, 0))


def read_rate() -> float:
    """Bytes a second of reading 4 GiB once, the best of four tilings."""
    words = torch.randint(-(2**31), 2**31 - 1, (READ // 4,), dtype=torch.int32, device="cuda")
    rates = []
    for block, steps, warps in ((2048, 8, 8), (4096, 8, 8), (8192, 8, 16), (4096, 16, 8)):
        programs = words.numel() // (block * steps)
        out = torch.empty(programs, dtype=torch.int32, device="cuda")

        def run() -> None:
            read_block[(programs,)](words, out, block, steps, num_warps=warps)  # noqa: B023 - called at once

        rates.append(READ / seconds(run))
    return max(rates)


def measure() -> dict[str, float]:
    """Rates in bytes and operations a second, times in seconds."""
    found = {"read": read_rate()}
    source = torch.randint(-(2**31), 2**31 - 1, (READ // 4,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    found["copy"] = 2 * READ / seconds(lambda: target.copy_(source))
    torch.cuda.empty_cache()
    left, right = (torch.randn(8192, 8192, device="cuda").bfloat16() for _ in range(2))
    found["matmul"] = 2 * 8192**3 / seconds(lambda: left @ right, 10, 10)
    one = torch.ones(8, device="cuda")

    def tiny(count: int) -> None:
        for _ in range(count):
            one.add_(1e-6)

    graph = captured(lambda: tiny(1000))
    found["graph_node"] = seconds(graph.replay) / 1000
    torch.cuda.synchronize()
    started = time.perf_counter()
    tiny(1000)
    torch.cuda.synchronize()
    found["eager_launch"] = (time.perf_counter() - started) / 1000
    single = captured(lambda: tiny(1))
    trips = []
    for _ in range(100):
        started = time.perf_counter()
        single.replay()
        torch.cuda.synchronize()
        trips.append(time.perf_counter() - started)
    found["round_trip"] = statistics.median(trips)
    return found
