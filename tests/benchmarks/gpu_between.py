"""The Triton kernels on the card: the checks of `tests/kernels/triton`, then times at true geometry by row count.

Times are of one launch in a graph of many, over data that partly stays in the cache, as in a decoded token.
"""

from __future__ import annotations

from collections.abc import Callable

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton.norms import add_norm, gated_silu
from tensorfold.kernels.triton.routers import route_rows
from tests.benchmarks.gpu_device import captured, half, seconds
from tests.kernels.triton import checks

ROWS = (1, 2, 4, 8, 16, 64)
LAYERS = 20  # states, or launches, in a timed graph
Run = Callable[[int], Callable[[], None]]


def many(run: Callable[[], None]) -> Callable[[], None]:
    """`run` as often as there are layers."""

    def runs() -> None:
        for _ in range(LAYERS):
            run()

    return runs


def norm(rows: int) -> Callable[[], None]:
    """Residual sum and norm of 5,120 numbers."""
    x, other, weight = half(rows, 5120), half(rows, 5120), half(5120)
    out, total = torch.empty_like(x), torch.empty_like(x)
    return many(lambda: add_norm(x, other, weight, out, total, 1e-6))


def gate(rows: int) -> Callable[[], None]:
    """silu(gate) * up of 17,408 numbers."""
    both, out = half(rows, 34816), half(rows, 17408)
    return many(lambda: gated_silu(both, out))


def router(rows: int) -> Callable[[], None]:
    """6 of 128 experts from 2,688 numbers."""
    x, weight, correction = half(rows, 2688), half(128, 2688), torch.zeros(128, device="cuda")
    logits = torch.empty(rows, 128, device="cuda")
    ids = torch.empty(rows, 6, dtype=torch.int32, device="cuda")
    shares = torch.empty(rows, 6, device="cuda")
    return many(lambda: route_rows(x, weight, correction, logits, ids, shares, 2.5))


KINDS: dict[str, Run] = {
    "norm": norm,
    "gate": gate,
    "router": router,
}


def measure() -> dict[str, dict[int, float]]:
    """Seconds a launch by kernel and row count."""
    found: dict[str, dict[int, float]] = {}
    for name, make in KINDS.items():
        found[name] = {rows: seconds(captured(make(rows)).replay) / LAYERS for rows in ROWS}
        print(f"{name:14}" + "  ".join(f"{rows}: {t * 1e6:6.1f} us" for rows, t in found[name].items()), flush=True)
        torch.cuda.empty_cache()
    return found


def check() -> list[str]:
    """The names of the checks that failed."""
    torch.manual_seed(6)
    failed = []
    for name, run in vars(checks).items():
        if not name.startswith("check_"):
            continue
        try:
            run("cuda")
        except AssertionError as fault:
            failed.append(f"{name}: {fault}")
        print(f"{name}: {'failed' if failed and failed[-1].startswith(name + ':') else 'holds'}", flush=True)
    return failed
