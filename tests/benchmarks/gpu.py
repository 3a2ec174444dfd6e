"""Builds, checks and measures the CUDA kernels on the card it finds: `python -m tests.benchmarks.gpu --part NAME`.

The last line of a part carries its figures; `--require` makes a missed least figure an exit code. Needs torch, triton.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

PARTS = ("ceilings", "check", "matmul", "experts", "between")
# Least figures: milliseconds for all products of a 27B token, then how much longer other row counts may take.
MOST_MS = 4.7
MOST_LONGER = {8: 1.03, 16: 1.25, 32: 1.8, 64: 2.2}


def ceilings(folder: Path) -> tuple[dict[str, object], bool]:
    """What the card can do at most."""
    from tests.benchmarks import gpu_ceilings

    found = gpu_ceilings.measure()
    print(
        f"read {found['read'] / 1e9:.0f} GB/s, copy {found['copy'] / 1e9:.0f} GB/s, "
        f"matmul {found['matmul'] / 1e12:.0f} TFLOP/s, graph node {found['graph_node'] * 1e6:.2f} us, "
        f"launch {found['eager_launch'] * 1e6:.1f} us, round trip {found['round_trip'] * 1e6:.1f} us"
    )
    return dict(found), True


def check(folder: Path) -> tuple[dict[str, object], bool]:
    """Rows equal bit for bit and near float64."""
    from tests.benchmarks import gpu_check

    found, bad = gpu_check.check(folder)
    print(f"{len(found)} matrices, {bad} with a fault")
    return {"matrices": found}, bad == 0


def matmul(folder: Path) -> tuple[dict[str, object], bool]:
    """Times of the products and what is asked of them."""
    from tests.benchmarks import gpu_ceilings, gpu_matmul

    read = gpu_ceilings.read_rate()
    found = gpu_matmul.measure(folder, read)
    token = found["qwen token"]["ms"]
    longer = {rows: token[rows] / token[1] for rows in MOST_LONGER}
    met = token[1] <= MOST_MS and all(longer[rows] <= most for rows, most in MOST_LONGER.items())
    floor = sum(gpu_matmul.size(matrix) * count for matrix, count in gpu_matmul.QWEN.values()) / read * 1e3
    print(
        f"27B token {token[1]:.2f} ms ({floor / token[1]:.0%} of {read / 1e9:.0f} GB/s; least {MOST_MS}), rows "
        + ", ".join(f"{rows}: x{longer[rows]:.2f} (least {most})" for rows, most in MOST_LONGER.items())
    )
    return {"read": read, "found": found}, met


def experts(folder: Path) -> tuple[dict[str, object], bool]:
    """Rows times the experts they chose, one launch a projection."""
    from tests.benchmarks import gpu_experts

    wrong, found = gpu_experts.run(folder)
    shown = "; ".join(
        f"{name} " + ", ".join(f"{r}: {t * 1e6:.1f} us" for r, t in times.items()) for name, times in found.items()
    )
    print(f"{len(wrong)} differ {wrong}; {shown}")
    return {"wrong": wrong, "seconds": found}, not wrong


def between(folder: Path) -> tuple[dict[str, object], bool]:
    """What is between the products: Triton's kernels."""
    from tests.benchmarks import gpu_between

    failed = gpu_between.check()
    found = gpu_between.measure()
    print(
        f"{len(failed)} checks failed {failed}; one row: "
        + ", ".join(f"{k} {v[1] * 1e6:.1f} us" for k, v in found.items())
    )
    return {"failed": failed, "seconds": found}, not failed


def commit() -> str:
    """The commit measured, or nothing known."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    """Run one part and write its figures."""
    words = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpu", description=__doc__)
    words.add_argument("--part", required=True, choices=PARTS)
    words.add_argument("--out", type=Path, default=Path("gpu-results"), help="where PART.json goes")
    words.add_argument("--cubins", type=Path, default=None, help="where compiled kernels are kept")
    words.add_argument("--require", action="store_true", help="fail when a least figure is missed")
    given = words.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    run = {"ceilings": ceilings, "check": check, "matmul": matmul, "experts": experts, "between": between}[given.part]
    found, met = run(given.cubins or given.out / "cubins")
    import torch  # type: ignore[import-not-found, unused-ignore]

    record = {
        "part": given.part,
        "commit": commit(),
        "card": torch.cuda.get_device_name(),
        "figures": found,
        "met": met,
    }
    (given.out / f"{given.part}.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    return int(given.require and not met)


if __name__ == "__main__":
    sys.exit(main())
