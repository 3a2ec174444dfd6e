"""The sampler on the card: draws against the domain's, hundreds of thousands of them, then times by rows and settings.

A time is of one draw launch (five kernels) in a graph of many. Rows are bell-shaped (the widest nucleus there is) and
peaked as a trained model's are. Where a device's exp or log differs from numpy's in the last bit a weight of 2^-40 may
move by one, and a score by 1e-16: `differences` counts draws that came out otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.sampler import RowDraw, Sampler
from tensorfold.domain.sampling import Sampling
from tests.benchmarks.gpu_device import captured, seconds
from tests.kernels.triton import acceptance_checks, sampler_checks

VOCABULARY = 248_320
ROWS = (1, 2, 4, 8, 16, 32, 64)
REPEATS = 20
KINDS = {
    "greedy": Sampling(),
    "plain": Sampling(3, 1.0),
    "top-k 20, top-p .95": Sampling(4, 1.0, 20, 0.95),
    "top-p .95": Sampling(5, 1.0, 0, 0.95),
    "top-p .95, min-p .05": Sampling(6, 0.8, 0, 0.95, 0.05),
    "top-k 20": Sampling(7, 1.0, 20),
}


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


def logits(rows: int, form: str) -> Any:
    """Rows on the card."""
    chance = np.random.default_rng(rows)
    made = np.stack([sampler_checks.shaped(chance, form, VOCABULARY) for _ in range(min(rows, 8))])
    return torch.from_numpy(made).cuda().repeat(-(-rows // len(made)), 1)[:rows].contiguous()


def prepared(rows: int, form: str, sampling: Sampling | None) -> Callable[[], None]:
    """Several draws of `rows` rows; no setting: a mixture of all of them."""
    sampler, values = Sampler(rows, VOCABULARY, "cuda"), logits(rows, form)
    mixed = list(KINDS.values())
    sampler.send([RowDraw(9 + row, sampling or mixed[row % len(mixed)]) for row in range(rows)])

    def run() -> None:
        for _ in range(REPEATS):
            sampler.draw(values)

    return run


def measure() -> dict[str, dict[int, float]]:
    """Seconds of one draw by form, setting and rows."""
    found: dict[str, dict[int, float]] = {}
    for form in ("peaked", "bell"):
        for name, sampling in (*KINDS.items(), ("mixed", None)):
            times = {}
            for rows in ROWS:
                times[rows] = seconds(captured(prepared(rows, form, sampling)).replay) / REPEATS
                torch.cuda.empty_cache()
            found[f"{form}, {name}"] = times
            print(
                f"{form + ', ' + name:30}" + "  ".join(f"{r}: {t * 1e6:6.1f} us" for r, t in times.items()), flush=True
            )
    return found


def kernels() -> None:
    """Times of the single kernels of one sampled row and of 32, from torch's profiler."""
    from torch.profiler import ProfilerActivity, profile  # type: ignore[import-not-found, unused-ignore]

    for rows in (1, 32):
        for name in ("top-k 20, top-p .95", "top-p .95"):
            run = prepared(rows, "bell", KINDS[name])
            run()
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                run()
                torch.cuda.synchronize()
            parts = {e.key: e.device_time for e in seen.key_averages() if e.key.startswith("_")}
            print(f"{rows} rows, {name}: " + ", ".join(f"{k} {v:.1f} us" for k, v in sorted(parts.items())), flush=True)


if __name__ == "__main__":
    import sys

    wrong = check()
    measure()
    kernels()
    sys.exit(bool(wrong))
