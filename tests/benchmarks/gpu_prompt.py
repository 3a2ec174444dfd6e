"""Prompts on the card: rows that hang on neither T nor their place, and times of unpacking, products and experts.

`python -m tests.benchmarks.gpu_prompt --out FOLDER` checks, measures every way of cutting side by side with the
library's product as the yardstick, and writes FOLDER/prompt.json. Weights are synthetic, of true geometry.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.triton.prompt_experts import multiply_groups
from tensorfold.kernels.triton.prompt_matmul import multiply
from tests.benchmarks.gpu_prompt_check import check_kernels, check_layer
from tests.benchmarks.gpu_prompt_geometry import CUTS, EXPERT_CUTS, layer, programs
from tests.benchmarks.gpu_prompt_times import Times, expert_times, layer_times, products_times


def prime(number: int) -> None:
    """Compile one way of cutting, so that the cache on disk has it."""
    cuts = (*CUTS, *EXPERT_CUTS)
    x = torch.zeros(256, 256, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    if number < len(CUTS):
        multiply(x, x, out, cuts[number], programs())
        return
    table = torch.zeros((4, 3), dtype=torch.int32, device="cuda")
    for square in (False, True):
        multiply_groups(x, x.view(1, 256, 256), out, table, (0, 1), cuts[number], square)


def prime_all() -> None:
    """Compile all of them in processes side by side; one that fails is left out later."""

    def one(number: int) -> None:
        command = (sys.executable, "-m", "tests.benchmarks.gpu_prompt", "--prime", str(number))
        subprocess.run(command, capture_output=True, check=False)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(one, range(len(CUTS) + len(EXPERT_CUTS))))


def check(folder: Path) -> list[str]:
    """What was not as promised."""
    begun = time.perf_counter()
    prime_all()
    print(f"compiled in {time.perf_counter() - begun:.0f} s", flush=True)
    wrong = check_kernels() + check_layer(layer(folder))
    print(f"{len(wrong)} wrong {wrong}, {time.perf_counter() - begun:.0f} s", flush=True)
    return wrong


def measure(folder: Path) -> Times:
    """Seconds by what was run, then by its rows."""
    return {**layer_times(layer(folder)), **products_times(), **expert_times()}


def main() -> int:
    """Run all of it, or compile one way of cutting."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--out", type=Path, default=Path("gpu-results"))
    words.add_argument("--prime", type=int, default=-1)
    given = words.parse_args()
    if given.prime >= 0:
        prime(given.prime)
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    wrong, found = check(given.out / "cubins"), measure(given.out / "cubins")
    (given.out / "prompt.json").write_text(json.dumps({"wrong": wrong, "seconds": found}, indent=1), encoding="utf-8")
    return int(bool(wrong))
