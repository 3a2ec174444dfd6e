"""`python -m tests.reference.live [NAME ...]`: every case against both libraries, here and now, at every position.

Prints for each case and library the largest difference of a logit and the positions whose best token differs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.reference import head_oracles, oracles
from tests.reference.parity_cases import CASES, LARGEST, Case
from tests.reference.reference_heads import mtp_logits_of
from tests.reference.reference_model import Fed, ReferenceModel


def compared(case: Case, folder: Path) -> bool:
    """Print a case's lines; whether all of them agree."""
    written = case.write(folder)
    model, fed = ReferenceModel.load(written, case.plan), Fed()
    ours = np.stack([model.feed(fed, token) for token in oracles.tokens()])
    found = {name: rows for name, rows in oracles.logits(case.family, written).items() if name in case.oracles}
    good = [_line(case.name, library, ours, rows) for library, rows in found.items()]
    if case.head:
        theirs = head_oracles.mtp_logits(case.family, written)
        good.append(_line(case.name, "mtp", mtp_logits_of(model, fed), theirs))
    return all(good)


def _line(name: str, library: str, ours: NDArray[np.float64], theirs: NDArray[np.float32]) -> bool:
    largest = float(np.abs(ours - theirs).max())
    flips = int((ours.argmax(axis=1) != theirs.argmax(axis=1)).sum())
    print(f"{name:24} {library:14} largest {largest:.1e}, {flips} of {len(ours)} best tokens differ", flush=True)
    return largest <= LARGEST and flips == 0


def main(names: list[str]) -> int:
    """0 when everything agrees."""
    reason = oracles.lacking()
    if reason is not None:
        print(reason)
        return 1
    good = True
    for case in (case for case in CASES if not names or case.name in names):
        with tempfile.TemporaryDirectory() as scratch:
            good &= compared(case, Path(scratch))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
