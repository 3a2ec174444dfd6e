"""Logits of other libraries, kept in files: float32 [positions, V] by case and library, the draft head's as `mtp`.

`python -m tests.reference.golden` makes them anew, and `python -m tests.reference.golden NAME ...` some of them, where
both libraries are installed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.reference import head_oracles, oracles
from tests.reference.parity_cases import CASES, POSITIONS, Case

FOLDER = Path(__file__).parent / "golden"
Kept = Mapping[str, NDArray[np.float32]]


def kept(name: str) -> Kept:
    """The kept logits of a case, by library."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


def made(case: Case, folder: Path) -> Kept:
    """The same, computed here and now."""
    written = case.write(folder)
    found = {name: rows for name, rows in oracles.logits(case.family, written).items() if name in case.oracles}
    if case.head:
        found["mtp"] = head_oracles.mtp_logits(case.family, written)
    return {name: rows[list(POSITIONS)] for name, rows in found.items()}


def main(names: list[str]) -> int:
    """Write the files of some cases, or of all, and of the drafter."""
    reason = oracles.lacking()
    if reason is not None:
        print(reason)
        return 1
    FOLDER.mkdir(exist_ok=True)
    for case in (case for case in CASES if not names or case.name in names):
        with tempfile.TemporaryDirectory() as scratch:
            _save(case.name, made(case, Path(scratch)))
    if not names or "dflash2" in names:
        with tempfile.TemporaryDirectory() as scratch:
            _save("dflash2", head_oracles.dflash_hidden(Path(scratch)))
    return 0


def _save(name: str, rows: Kept) -> None:
    np.savez_compressed(FOLDER / f"{name}.npz", **rows)  # type: ignore[arg-type]
    print(name, *rows, f"{(FOLDER / f'{name}.npz').stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
