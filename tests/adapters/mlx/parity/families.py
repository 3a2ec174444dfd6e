"""Every family's tiny checkpoints through this backend, held against transformers, mlx-lm and our float64 reference.

`python -m tests.adapters.mlx.parity.families` compares every position with the libraries, run here and now where they
are installed and by their kept logits where not; `make parity` does so after the Llamas. Rows come as the whole
prompt, in windows and one by one, in numpy and through MLX.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.forward import Forward
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.application.settings import DraftSettings
from tensorfold.domain.windows import chain
from tests.adapters.mlx.tiny_families import TinyFamily
from tests.reference import oracles
from tests.reference.golden import kept
from tests.reference.parity_cases import CASES, LARGEST, POSITIONS, Case
from tests.reference.reference_model import ReferenceModel

Logits = NDArray[Any]
WAYS = {"whole prompt": oracles.TOKENS, "windows of 16": 16, "one by one": 1}
REFERENCE = "float64"


@dataclass(slots=True)
class Compared:
    """One family against one oracle over all cases, ways and devices."""

    largest: float = 0.0
    flips: int = 0
    rows: int = 0

    def take(self, ours: Logits, theirs: Logits) -> None:
        """Compare the same positions of both."""
        self.largest = max(self.largest, float(np.abs(ours.astype(np.float64) - theirs).max()))
        self.flips += int((ours.argmax(axis=1) != theirs.argmax(axis=1)).sum())
        self.rows += len(ours)

    @property
    def holds(self) -> bool:
        """Whether every logit was close and every best token the same."""
        return self.largest <= LARGEST and self.flips == 0


def devices(case: Case) -> dict[str, RowOps[Any]]:
    """The ways in which a case's rows are computed in float32.

    Over dense half-precision matrices as stored rows are rounded to their dtype, which is no float32 arithmetic.
    """
    made: dict[str, RowOps[Any]] = {"rows": CpuRows(), "library": LibraryRows("float32")}
    return made | ({"stored": CpuRows(unpack=False)} if case.affine or case.dtype == "F32" else {})


def ours(case: Case, folder: Path, ops: RowOps[Any]) -> Iterator[tuple[str, Logits]]:
    """Logits [T, V] of the written checkpoint, in every way."""
    forward = TinyFamily(folder, case.plan).forward(ops, DraftSettings(mtp_drafts=0))
    for way, rows in WAYS.items():
        yield way, _read(forward, oracles.tokens(), rows)


def _read(forward: Forward[Any], tokens: list[int], rows: int) -> Logits:
    lane = forward.open(len(tokens))
    parts = []
    for at in range(0, len(tokens), rows):
        part = tokens[at : at + rows]
        parts.append(forward.logits(lane, chain(part[0], part[1:])))
        lane.keep(tuple(range(len(part))))
    return np.concatenate(parts)


def theirs(case: Case, folder: Path, *, live: bool) -> Mapping[str, tuple[list[int], Logits]]:
    """Each oracle's positions and logits there; the float64 reference knows them all."""
    model = ReferenceModel.load(folder, case.plan)
    every = list(range(oracles.TOKENS))
    found = {REFERENCE: (every, model.logits(oracles.tokens()))}
    if live:
        made = oracles.logits(case.family, folder)
        return found | {name: (every, rows) for name, rows in made.items() if name in case.oracles}
    return found | {name: (list(POSITIONS), rows) for name, rows in kept(case.name).items() if name != "mtp"}


def main() -> int:
    """0 when every family agrees with every oracle."""
    reason = oracles.lacking()
    table: dict[tuple[str, str], Compared] = {}
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            folder = case.write(Path(scratch))
            expected = theirs(case, folder, live=reason is None)
            for ops in devices(case).values():
                for _, logits in ours(case, folder, ops):
                    for oracle, (positions, rows) in expected.items():
                        table.setdefault((case.family, oracle), Compared()).take(logits[positions], rows)
                ops.close()
    for (family, oracle), compared in sorted(table.items()):
        print(
            f"{family:12} {oracle:13} largest difference {compared.largest:.1e}, {compared.flips} of "
            f"{compared.rows:,} best tokens differ{'' if compared.holds else '   FAILED'}"
        )
    failed = [" ".join(name) for name, compared in table.items() if not compared.holds]
    source = "run here" if reason is None else f"kept logits of {len(POSITIONS)} positions, since {reason}"
    print(
        f"parity of families {'holds' if not failed else 'FAILED: ' + ', '.join(failed)}: {len(CASES)} checkpoints, "
        f"{oracles.TOKENS} positions, {len(WAYS)} ways, in numpy and through MLX; libraries {source}; largest "
        f"difference {max(c.largest for c in table.values()):.1e} (limit {LARGEST:.0e})"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
