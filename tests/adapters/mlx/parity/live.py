"""`python -m tests.adapters.mlx.parity.live`: parity of tiny Llamas with mlx-lm and transformers, run here and now.

Without both libraries the kept logits take their place, and the last line says so. Exits 1 on a logit that differs by
more than 1e-4 or a best token that differs at any position.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.adapters.mlx.parity.cases import CASES, LARGEST, TOKENS, Case
from tests.adapters.mlx.parity.golden import kept
from tests.adapters.mlx.parity.oracles import ORACLES, WANTED, Logits, lacking
from tests.adapters.mlx.parity.ours import arithmetics, by_us, differences


def main() -> int:
    """Compare every case with every oracle that can express it."""
    reason = lacking()
    worst, flips, compared = 0.0, 0, dict.fromkeys(ORACLES, 0)
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            theirs = _live(case, folder) if reason is None else dict(kept(case))
            for way, ops in arithmetics(case).items():
                ours = by_us(case, folder / way, ops)
                for name, logits in theirs.items():
                    largest, other = differences(ours, logits)
                    compared[name] += 1
                    worst, flips = max(worst, largest), flips + other
                    if largest > LARGEST or other or not np.isfinite(ours).all():
                        print(
                            f"{case.name}, {way}, {name}: largest difference {largest:.2e}, {other} best tokens differ"
                        )
    source = "run here" if reason is None else f"kept logits, since {reason}"
    oracles = ", ".join(f"{package} {version} x {compared[name]}" for name, (package, version) in WANTED.items())
    holds = worst <= LARGEST and flips == 0
    print(
        f"parity {'holds' if holds else 'FAILED'}: {len(CASES)} checkpoints, {TOKENS} positions each, {oracles} "
        f"({source}); largest difference {worst:.2e} (limit {LARGEST:.0e}), {flips} best tokens differ"
    )
    return 0 if holds else 1


def _live(case: Case, folder: Path) -> dict[str, Logits]:
    made = {name: oracle(case, folder / name) for name, oracle in ORACLES.items()}
    return {name: logits for name, logits in made.items() if logits is not None}


if __name__ == "__main__":
    sys.exit(main())
