"""`python -m tests.adapters.mlx.parity.live`: tiny Llamas against mlx-lm, transformers and float64, here and now.

Without both libraries the kept logits take their place, and the last line says so. Exits 1 on a logit that differs by
more than 1e-4 or a best token that differs at any position.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.adapters.mlx.parity.cases import CASES, LARGEST, TOKENS, Case
from tests.adapters.mlx.parity.golden import kept
from tests.adapters.mlx.parity.oracles import ORACLES, WANTED, Logits, lacking
from tests.adapters.mlx.parity.ours import arithmetics, by_float64, by_us, differences

WAYS = {"whole prompt": TOKENS, "windows of 16": 16, "one by one": 1}
REFERENCE = "float64"


def main() -> int:
    """Compare every case, in every way, with every oracle that can express it."""
    reason = lacking()
    table = {name: [0.0, 0, 0] for name in (*ORACLES, REFERENCE)}
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            theirs: dict[str, NDArray[Any]] = dict(_live(case, folder) if reason is None else kept(case))
            theirs[REFERENCE] = by_float64(case)
            for device, ops in arithmetics(case).items():
                for way, rows in WAYS.items():
                    ours = by_us(case, folder / device, ops, rows)
                    for name, logits in theirs.items():
                        _compare(table[name], ours, logits, f"{case.name}, {device}, {way}, {name}")
    source = "run here" if reason is None else f"kept logits, since {reason}"
    versions = dict(WANTED.values())
    for name, (largest, other, compared) in table.items():
        package = WANTED[name][0] if name in WANTED else name
        version = f" {versions[package]}" if package in versions else ""
        print(
            f"llama        {package + version:20} largest difference {largest:.1e}, {other} of {compared:,} best "
            "tokens differ"
        )
    worst, flips = max(row[0] for row in table.values()), sum(row[1] for row in table.values())
    holds = worst <= LARGEST and flips == 0
    print(
        f"parity of Llamas {'holds' if holds else 'FAILED'}: {len(CASES)} checkpoints, {TOKENS} positions, {len(WAYS)} "
        f"ways, in numpy and through MLX; libraries {source}; largest difference {worst:.1e} (limit {LARGEST:.0e}), "
        f"{flips} best tokens differ"
    )
    return 0 if holds else 1


def _compare(row: list[float], ours: Logits, theirs: NDArray[Any], what: str) -> None:
    largest, flips = differences(ours, theirs)
    row[:] = max(row[0], largest), row[1] + flips, row[2] + len(ours)
    if largest > LARGEST or flips or not np.isfinite(ours).all():
        print(f"{what}: largest difference {largest:.2e}, {flips} best tokens differ")


def _live(case: Case, folder: Path) -> dict[str, Logits]:
    made = {name: oracle(case, folder / name) for name, oracle in ORACLES.items()}
    return {name: logits for name, logits in made.items() if logits is not None}


if __name__ == "__main__":
    sys.exit(main())
