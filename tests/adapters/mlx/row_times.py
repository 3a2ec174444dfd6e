"""`python -m tests.adapters.mlx.row_times FOLDER`: what a window costs by its rows, for each arithmetic of the backend.

Prints wall and processor milliseconds of one window, the best of several, behind a short and a longer prompt.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.runtime import current
from tensorfold.domain.windows import chain
from tests.adapters.mlx.parity.ours import forward_of

WAYS: dict[str, Callable[[], RowOps[Any]]] = {
    "rows": CpuRows,
    "stored": lambda: CpuRows(unpack=False),
    "library": lambda: LibraryRows("float32"),
    "library-bf16": lambda: LibraryRows("bfloat16"),
}
COUNTS = (1, 2, 4, 8, 16, 32, 64)
PROMPTS = (100, 1000)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--way", choices=sorted(WAYS), action="append")
    parser.add_argument("--tries", type=int, default=5)
    flags = parser.parse_args()
    runtime = current()
    print(f"{runtime.version} on {runtime.device}")
    for way in flags.way or ["rows"]:
        forward = forward_of(flags.folder, WAYS[way]())
        vocabulary = forward.decoder.plan.head.vocabulary
        generator = np.random.default_rng(1)
        for prompt in PROMPTS:
            lane = forward.open(prompt + max(COUNTS))
            began = perf_counter()
            forward.absorb(lane, generator.integers(0, vocabulary, prompt), 64)
            each = 1000 * (perf_counter() - began) / prompt
            times = []
            for count in COUNTS:
                ids = generator.integers(0, vocabulary, count).tolist()
                wall, own = [], []
                for _ in range(flags.tries):
                    began, used = perf_counter(), process_time()
                    forward.logits(lane, chain(ids[0], ids[1:]))
                    wall.append(perf_counter() - began)
                    own.append(process_time() - used)
                    lane.discard()
                times.append(f"{count}: {1000 * min(wall):.1f} ({1000 * min(own):.1f})")
            print(f"{way}, {prompt} ids before, {each:.1f} ms a prompt row; rows: ms (processor ms) {', '.join(times)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
