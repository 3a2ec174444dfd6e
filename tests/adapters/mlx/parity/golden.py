"""Logits of the oracles, kept in files: float32 [T, V] of each case and oracle, with what produced them.

`python -m tests.adapters.mlx.parity.golden` makes them anew, where both libraries are installed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.adapters.mlx.parity.cases import CASES, Case
from tests.adapters.mlx.parity.oracles import ORACLES, WANTED, lacking

FOLDER = Path(__file__).parent / "golden"
_ABOUT = FOLDER / "about.json"


def kept(case: Case) -> Mapping[str, NDArray[np.float32]]:
    """The oracles' logits of a case, by the oracle's name."""
    with np.load(FOLDER / f"{case.name}.npz") as file:
        return {name: file[name] for name in file.files}


def checkpoint_digest(case: Case) -> str:
    """SHA-256 of a case's config, tensors and ids: kept logits of other bytes prove nothing."""
    digest = hashlib.sha256(json.dumps(case.shape.config(), sort_keys=True).encode())
    for name, tensor in case.shape.tensors().items():
        digest.update(name.encode() + tensor.values.tobytes())
    return digest.hexdigest() + hashlib.sha256(case.tokens().tobytes()).hexdigest()[:8]


def digests() -> Mapping[str, str]:
    """The digest of each case when its logits were made."""
    found: dict[str, str] = json.loads(_ABOUT.read_text())["checkpoints"]
    return found


def main() -> int:
    """Write every case's logits."""
    reason = lacking()
    if reason is not None:
        print(reason)
        return 1
    FOLDER.mkdir(exist_ok=True)
    for case in CASES:
        with tempfile.TemporaryDirectory() as scratch:
            made = {name: oracle(case, Path(scratch) / name) for name, oracle in ORACLES.items()}
        np.savez_compressed(
            FOLDER / f"{case.name}.npz",
            **{n: v for n, v in made.items() if v is not None},  # type: ignore[arg-type]
        )
    about = {
        "oracles": dict(WANTED.values()),
        "checkpoints": {case.name: checkpoint_digest(case) for case in CASES},
    }
    _ABOUT.write_text(json.dumps(about, indent=1) + "\n")
    size = sum(path.stat().st_size for path in FOLDER.iterdir())
    print(f"{len(CASES)} cases, {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
