"""The sampler on the card: draws against the domain's, thousands of them, then times by rows and settings.

A time is of one draw (five kernels) in a graph of several. `warm`: one draw behind another. `cold`: as a round of a
model has it, whose weights have passed through the cache and whose kernels have taken the place of these; what that
costs by itself is taken off. Rows are bell-shaped, whose nucleus has nearly all ids, and peaked as a trained model's.
Where a device's exp or log differs from numpy's in the last bit a weight of 2^-40 may move by one, and a score by
1e-16: `differences` of a check counts draws that came out otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.sampler import RowDraw, Sampler
from tensorfold.domain.sampling import Sampling
from tests.benchmarks.gpu_device import captured, seconds
from tests.kernels.triton import acceptance_checks, sampler_checks

VOCABULARIES = (131_072, 248_320)
ROWS = (1, 4, 8, 64)
COLD_ROWS = (1, 8)
REPEATS = 12
FAR = 160 << 20  # bytes written between two draws: three times the cache
KINDS = {
    "greedy": ("bell", Sampling()),
    "top-k 40": ("bell", Sampling(7, 1.0, 40)),
    "top-k 20, top-p .95": ("bell", Sampling(4, 1.0, 20, 0.95)),
    "top-p .95, flat": ("bell", Sampling(5, 1.0, 0, 0.95)),
    "top-p .95, peaked": ("peaked", Sampling(5, 1.0, 0, 0.95)),
}
Times = dict[str, dict[int, float]]


def check() -> list[str]:
    """The names of the checks that failed."""
    failed = []
    paths = {name: run for name, run in vars(acceptance_checks).items() if name.startswith("check_")}
    for name, run in {**sampler_checks.CHECKS, **paths}.items():
        try:
            run("cuda")
        except AssertionError as fault:
            failed.append(f"{name}: {fault}")
        print(f"{name}: {'failed' if failed and failed[-1].startswith(name + ':') else 'holds'}", flush=True)
    return failed


class Bench:
    """Draws over one vocabulary, of rows that were made once."""

    def __init__(self, vocabulary: int) -> None:
        self.sampler = Sampler(max(ROWS), vocabulary, "cuda")
        chance = torch.Generator("cuda").manual_seed(vocabulary)
        bell = torch.randn(max(ROWS), vocabulary, device="cuda", generator=chance)
        peaked = 2.5 * bell - 3
        peaked[:, :: vocabulary // 30] += 14 * torch.rand(peaked[:, :: vocabulary // 30].shape, device="cuda")
        self.rows = {"bell": bell, "peaked": peaked}

    def asked(self, form: str, sampling: Sampling, rows: int) -> Any:
        """Logits of so many rows, with the settings of a draw of them sent."""
        self.sampler.send([RowDraw(9 + row, sampling) for row in range(rows)])
        return self.rows[form][:rows]

    def warm(self, logits: Any) -> float:
        """Seconds of a draw behind another."""
        return _times(lambda: self.sampler.draw(logits))

    def cold(self, logits: Any) -> float:
        """Seconds of a draw in a round, its logits just written."""
        far, own = torch.empty(FAR, dtype=torch.uint8, device="cuda"), torch.empty_like(logits)
        wide = torch.rand(1 << 17, dtype=torch.float64, device="cuda")

        def between() -> None:
            for other in (torch.sin, torch.tan, torch.sinh, torch.asinh, torch.atan, torch.expm1, torch.log1p):
                other(wide, out=wide)
            far.fill_(1)
            own.copy_(logits)

        def drawn() -> None:
            between()
            self.sampler.draw(own)

        return _times(drawn) - _times(between)


def _times(run: Callable[[], object]) -> float:
    def several() -> None:
        for _ in range(REPEATS):
            run()

    return seconds(captured(several).replay, 5, 1) / REPEATS


def measure() -> dict[str, Times]:
    """Seconds of one draw by vocabulary and setting, by rows: warm, and cold for one row and eight."""
    found: dict[str, Times] = {}
    for vocabulary in VOCABULARIES:
        bench = Bench(vocabulary)
        for name, (form, sampling) in KINDS.items():
            times: Times = {"warm": {}, "cold": {}}
            for rows in ROWS:
                logits = bench.asked(form, sampling, rows)
                times["warm"][rows] = bench.warm(logits)
                if rows in COLD_ROWS:
                    times["cold"][rows] = bench.cold(logits)
            found[f"{vocabulary}, {name}"] = times
    print("; ".join(f"{name}: {_line(times)}" for name, times in found.items()), flush=True)
    return found


def _line(times: Times) -> str:
    warm, cold = (
        " ".join(f"{rows}: {taken * 1e6:.1f}" for rows, taken in times[state].items()) for state in ("warm", "cold")
    )
    return f"{warm} us (cold {cold})"


def kernels() -> None:
    """Times of the single kernels, from torch's profiler."""
    from torch.profiler import ProfilerActivity, profile  # type: ignore[import-not-found, unused-ignore]

    bench = Bench(VOCABULARIES[0])
    for rows in (1, 64):
        for name in ("greedy", "top-k 20, top-p .95", "top-p .95, flat"):
            logits = bench.asked(*KINDS[name], rows)
            bench.sampler.draw(logits)
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                for _ in range(REPEATS):
                    bench.sampler.draw(logits)
                torch.cuda.synchronize()
            parts = {e.key: e.device_time for e in seen.key_averages() if e.key.startswith("_")}
            print(f"{rows} rows, {name}: " + ", ".join(f"{k} {v:.1f} us" for k, v in sorted(parts.items())), flush=True)


if __name__ == "__main__":
    import sys

    wrong = [] if "times" in sys.argv else check()
    measure()
    kernels()
    sys.exit(bool(wrong))
